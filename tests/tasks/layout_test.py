"""Packing the examples of a batch into rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks import batches


@given(st.lists(st.integers(1, 60), min_size=1, max_size=50))
def test_examples_share_rows_without_overlapping(lengths):
    lengths = np.array(lengths)
    layout = batches.packed(lengths, 128)
    taken = np.zeros((layout.num_rows, layout.length), int)
    for i, length in enumerate(lengths):
        assert layout.starts[i] + length <= layout.length
        taken[layout.rows[i], layout.starts[i] : layout.starts[i] + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    assert taken.any(axis=1).all()
    assert layout.length <= 128
    for row in range(layout.num_rows):
        slots = sorted(layout.slots[layout.rows == row].tolist())
        assert slots == list(range(len(slots)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(40, 130))
def test_each_goes_into_the_first_row_with_room(lengths, length):
    layout = batches._first_fit(np.array(lengths), length)
    used = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        rooms = [r for r, tokens in enumerate(used) if tokens + lengths[i] <= length]
        row = min(rooms, default=len(used))
        used += [0] * (row == len(used))
        assert (layout.rows[i], layout.starts[i]) == (row, used[row])
        used[row] += lengths[i]
    assert layout.num_rows == len(used)


def test_short_sentences_leave_little_padding():
    lengths = np.random.default_rng(3).gamma(2.0, 6.0, 32).astype(int) + 3
    layout = batches.packed(lengths, 512)
    assert lengths.sum() / (layout.num_rows * layout.length) > 0.85
    padded = batches.one_per_row(lengths, lengths.max())
    assert lengths.sum() / (padded.num_rows * padded.length) < 0.6


def test_an_example_as_long_as_the_model_allows():
    layout = batches.packed(np.array([100, 7, 93]), 100)
    assert layout.length == 100 and layout.num_rows == 2


@pytest.mark.parametrize(
    ("length", "rounded"), [(1, 16), (16, 16), (17, 32), (99, 100)]
)
def test_rounded_length(length, rounded):
    assert batches.rounded_length(length, 100) == rounded
