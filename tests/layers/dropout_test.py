"""Masks of dropout follow from seed and step alone, and have the rate."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.dropout import Dropout, StepSeeds

ONES = np.ones((40, 53), "float32")


def masks(seed, step, n=3, rate=0.5):
    seeds = StepSeeds(seed, step)
    layer = Dropout(rate)
    return [np.array(layer(ONES, training=True, seeds=seeds)) != 0 for _ in range(n)]


def assert_unrelated(a, b):
    """Two independent masks of rate 0.5 agree in half of the places."""
    assert abs((a == b).mean() - 0.5) < 0.06


LATER = [2**19, 2**20, 2**21, 10**7, 2**31 - 10]


@pytest.mark.parametrize(
    "other",
    [(5, 10), (6, 9), (5 + 7919, 9), (9, 5), *((5, 9 + later) for later in LATER)],
)
def test_other_steps_and_seeds_give_other_masks(other):
    for a in masks(5, 9):
        for b in masks(*other):
            assert_unrelated(a, b)


def graph_masks(jit_compile):
    layer = Dropout(0.5)

    @tf.function(jit_compile=jit_compile)
    def run(seed, step):
        seeds = StepSeeds(seed, step)
        return [layer(ONES, training=True, seeds=seeds) != 0 for _ in range(3)]

    return lambda *values: [mask.numpy() for mask in run(*map(tf.constant, values))]


def test_graph_masks_are_the_eager_ones():
    run = graph_masks(jit_compile=False)
    for step in (9, 2**20 + 9):
        np.testing.assert_array_equal(run(5, step), masks(5, step))


def test_xla_masks_are_repeatable_and_unrelated():
    first, second = graph_masks(jit_compile=True), graph_masks(jit_compile=True)
    a, b, c = first(5, 9)
    np.testing.assert_array_equal(second(5, 9), [a, b, c])
    assert_unrelated(a, b)
    assert_unrelated(b, c)
    for other in first(5, 10) + first(6, 9):
        assert_unrelated(a, other)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_and_the_mean_are_kept(rate):
    x = np.ones((300, 331), "float32")
    layer = Dropout(rate)
    kept = np.array(layer(x, training=True, seeds=StepSeeds(1, 1)))
    # Five standard deviations.
    error = 5 * np.sqrt(rate * (1 - rate) / x.size)
    assert abs((kept == 0).mean() - rate) < error
    np.testing.assert_allclose(kept[kept != 0], 1 / (1 - rate), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_mask_does_not_depend_on_the_dtype(dtype):
    # Varied values, since rounding 1 / (1 - rate) has a bias of its own.
    x = np.random.default_rng(0).uniform(1, 2, (600, 1013)).astype("float32")
    low = keras.ops.cast(x, dtype)
    out = Dropout(0.1, dtype=dtype)(low, training=True, seeds=StepSeeds(1, 1))
    assert keras.backend.standardize_dtype(out.dtype) == dtype
    out = np.array(keras.ops.cast(out, "float32"))
    assert abs((out == 0).mean() - 0.1) < 5 * np.sqrt(0.09 / x.size)
    mean = out.sum() / np.array(keras.ops.cast(low, "float32")).sum()
    assert abs(mean - 1) < 0.0025
    expected = keras.random.dropout(x, 0.1, seed=StepSeeds(1, 1))
    np.testing.assert_array_equal(out != 0, np.array(expected) != 0)
    if dtype == "float32":
        np.testing.assert_array_equal(out, np.array(expected))


def test_off_at_inference_and_at_rate_0():
    np.testing.assert_array_equal(Dropout(0.5)(ONES), ONES)
    np.testing.assert_array_equal(Dropout(0.5)(ONES, training=False), ONES)
    np.testing.assert_array_equal(Dropout(0.0)(ONES, training=True), ONES)
    assert Dropout(0.0).seed_generator is None
