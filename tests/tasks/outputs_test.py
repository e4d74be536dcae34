"""Rows are divided into batches by length, and batches among threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks import outputs
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import in_threads, sorted_batches
from albert_tf.tasks.tagging import encode_words

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 100), st.integers(1, 8))
def test_batches_hold_every_row_once_within_the_limits(lengths, rows, tokens, step):
    lengths = np.array(lengths)
    batches = sorted_batches(lengths, rows, tokens, step)
    order = np.concatenate(batches)
    assert sorted(order) == list(range(len(lengths)))
    assert (np.diff(lengths[order]) >= 0).all()
    sizes = []
    for batch in batches:
        longest = -(-lengths[batch].max() // step) * step
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * longest <= tokens
        sizes.append((len(batch), longest))
    # A batch ends only where the next row would exceed a limit.
    for (size, _), (_, longest), following in zip(
        sizes, sizes[1:], batches[1:], strict=False
    ):
        first = -(-lengths[following[0]] // step) * step
        assert size == rows or (size + 1) * first > tokens
        assert longest >= first


@given(LENGTHS, st.integers(1, 40), st.integers(1, 600))
def test_rows_that_are_added_stay_within_the_limit(lengths, rows, tokens):
    lengths = np.array(lengths)
    batches = sorted_batches(lengths, rows, tokens, 1, row_step=8)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches[:-1]:
        assert len(batch) in (1, 2, 4) or len(batch) % 8 == 0
    for batch in batches:
        padded = 1 << (len(batch) - 1).bit_length() if len(batch) < 8 else len(batch)
        assert len(batch) == 1 or padded * lengths[batch].max() <= tokens


def test_without_a_limit_of_tokens_batches_are_full():
    batches = sorted_batches(np.arange(7, 0, -1), 3)
    assert [list(batch) for batch in batches] == [[6, 5, 4], [3, 2, 1], [0]]


def test_threads_work_at_the_same_time_and_keep_the_order():
    barrier = threading.Barrier(3, timeout=60)

    def compute(item):
        barrier.wait()
        return -item

    assert list(in_threads(compute, range(6), 3)) == [0, -1, -2, -3, -4, -5]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_error_in_a_thread_is_raised(num_threads):
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda x: 1 // x, [1, 0, 2], num_threads))


@pytest.mark.parametrize("title", ["", "evaluate"])
def test_a_bar_counts_all_tokens(tokenizer, monkeypatch, title):
    bars = []

    class Bar(outputs.tqdm.tqdm):
        def __init__(self, **kwargs):
            super().__init__(**kwargs | {"delay": 0, "mininterval": 0})
            bars.append(self)

    monkeypatch.setattr(outputs.tqdm, "tqdm", Bar)
    words = [["a", "film"], ["day"], ["a"] * 9]
    encoded = encode_words(words, tokenizer, 12)
    shape = BatchShape("token_classifier", 12, 12, 0)
    zeros = lambda batch: np.zeros((*batch["places"].shape, 2))  # noqa: E731
    outputs.collect_outputs(zeros, encoded, shape, 2, title=title)
    tokens = int(encoded.rows.lengths.sum()) if title else 0
    assert [bar.n for bar in bars] == [tokens]
