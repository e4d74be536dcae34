"""Batches for fine-tuning: order, padding, shapes."""

import itertools

import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.tasks.dataset import make_classification_dataset
from albert_tf.text.inputs import EncodedTexts

NUM_EXAMPLES = 11


def encoded_rows():
    """Row i is `2 (i + 100) * (2 i + 1) 3`, its second half in segment 1."""
    rows = [[2, *[i + 100] * (2 * i + 1), 3] for i in range(NUM_EXAMPLES)]
    lengths = np.array([len(row) for row in rows])
    return EncodedTexts(
        np.array(sum(rows, []), np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        (lengths // 2).astype(np.int32),
    )


def batches(count=None, **kwargs):
    arguments = {"batch_size": 4, "max_seq_length": 40, "pad_id": 0, **kwargs}
    dataset = make_classification_dataset(
        encoded_rows(), range(NUM_EXAMPLES), **arguments
    )
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def test_one_pass_in_order_with_buckets():
    got = batches()
    assert [labels.tolist() for _, labels in got] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10],
    ]
    assert [x["token_ids"].shape for x, _ in got] == [(4, 16), (4, 32), (3, 32)]
    inputs = got[0][0]
    assert inputs["token_ids"][1, :6].tolist() == [2, 101, 101, 101, 3, 0]
    assert inputs["padding_mask"][1, :6].tolist() == [1, 1, 1, 1, 1, 0]
    assert inputs["segment_ids"][1, :6].tolist() == [0, 0, 1, 1, 1, 0]
    assert all(x.dtype == np.int32 for x in inputs.values())


def test_fixed_length():
    dataset = make_classification_dataset(
        encoded_rows(),
        range(NUM_EXAMPLES),
        batch_size=4,
        max_seq_length=40,
        pad_id=0,
        shuffle_seed=1,
        bucketed=False,
    )
    assert dataset.element_spec[0]["token_ids"].shape == (4, 40)


def test_every_epoch_is_another_permutation():
    labels = np.concatenate([y for _, y in batches(11, shuffle_seed=5)])
    epochs = labels.reshape(4, NUM_EXAMPLES)
    for epoch in epochs:
        assert sorted(epoch) == list(range(NUM_EXAMPLES))
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_order_is_a_function_of_seed_and_step():
    def labels(count, **kwargs):
        return [y.tolist() for _, y in batches(count, **kwargs)]

    assert labels(6, shuffle_seed=5) == labels(6, shuffle_seed=5)
    assert labels(6, shuffle_seed=5) != labels(6, shuffle_seed=6)
    assert labels(3, shuffle_seed=5, start_step=3) == labels(6, shuffle_seed=5)[3:]


def test_the_order_is_the_recorded_one():
    """Runs with the same seed stay comparable between versions."""
    labels = np.concatenate([y for _, y in batches(6, shuffle_seed=5)])
    assert labels.tolist() == [
        5,
        0,
        6,
        1,
        2,
        8,
        4,
        9,
        7,
        10,
        3,
        3,
        10,
        1,
        4,
        5,
        8,
        2,
        6,
        9,
        7,
        0,
        0,
        4,
    ]


def test_bad_sizes():
    with pytest.raises(UsageError, match="batch_size must be positive, received 0"):
        batches(batch_size=0)
    with pytest.raises(UsageError, match="be at least 23, .*, received 22"):
        batches(max_seq_length=22)
