"""Rows are answered a few of similar length at a time, and come back in their order."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.export import row_steps
from albert_tf.export.row_steps import ROWS, in_steps, run_padded


def steps_of(lengths):
    """Returns the indices of the rows of each step, and its width."""
    found = []

    def answer(rows, width):
        found.append((rows.numpy().tolist(), int(width)))
        return tf.gather(tf.constant(lengths), rows)

    got = in_steps(answer, tf.constant(lengths), tf.zeros([0], tf.int32))
    assert got.numpy().tolist() == lengths
    return found


def test_a_long_row_does_not_make_short_ones_long():
    assert steps_of([2] * 20 + [500] + [2] * 11) == [
        ([20], 512),
        ([*range(20), *range(21, 32)], 16),
    ]
    # Not worth a step of their own.
    assert steps_of([2, 40, 3, 2, 9]) == [([1, 4, 2, 0, 3], 48)]


@pytest.mark.parametrize("longest", [512, 90, 16])
def test_a_step_is_bounded(longest):
    lengths = np.random.default_rng(0).integers(1, longest + 1, 999).tolist()
    steps = steps_of(lengths)
    assert len(steps) < 999 / min(ROWS, 4096 / longest) + 9
    for rows, width in steps:
        assert len(rows) <= ROWS and len(rows) * width <= 4096
        shortest = min(lengths[i] for i in rows)
        assert width < 2 * shortest + 16 or len(rows) * width <= 512
    assert steps_of([]) == []


def test_padded_rows():
    mask = tf.sequence_mask([1, 60, 7], 60, tf.int32)
    inputs = {features.PADDING_MASK: mask, features.TOKEN_IDS: mask * 5}
    widths = []

    def answer(inputs, factor):
        widths.append(inputs[features.TOKEN_IDS].shape[1])
        return tf.reduce_sum(inputs[features.TOKEN_IDS], 1) * factor

    nothing = tf.zeros([0], tf.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_steps, "_FEW_TOKENS", 1)
        for least, expected in ((1, [60, 16, 16]), (20, [60, 32]), (60, [60])):
            widths.clear()
            factor = tf.constant([1, 2, 3])
            got = run_padded(answer, inputs, nothing, least=least, factor=factor)
            assert got.numpy().tolist() == [5, 600, 105]
            assert widths == expected
