"""Layer normalization equals Keras's, its own gradient what TensorFlow derives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.ops import LayerNorm

RNG = np.random.default_rng(0)


def _layers(dtype, size):
    made = []
    for kind in (LayerNorm, keras.layers.LayerNormalization):
        layer = kind(epsilon=1e-12, dtype=dtype)
        layer.build((None, size))
        made.append(layer)
    values = [RNG.normal(size=size), RNG.normal(size=size)]
    for layer in made:
        layer.set_weights(values)
    return made


def _run(layer, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    sources = [x, *(v.value for v in layer.trainable_variables)]
    return [y, *tape.gradient(y, sources, output_gradients=upstream)]


@pytest.mark.parametrize(
    "dtype, atol",
    [("float32", 1e-4), ("float64", 1e-9), ("mixed_bfloat16", 0.06), ("bfloat16", 0.1)],
)
@pytest.mark.parametrize("shape", [(4, 16), (3, 5, 16), (2, 3, 4, 16)])
def test_values_and_gradients_equal_those_of_keras(dtype, atol, shape):
    mine, theirs = _layers(dtype, shape[-1])
    x, upstream = (
        tf.cast(RNG.normal(size=shape) * 2 + 1, mine.compute_dtype) for _ in range(2)
    )
    for ours, expected in zip(
        _run(mine, x, upstream), _run(theirs, x, upstream), strict=True
    ):
        assert ours.shape == expected.shape and ours.dtype == expected.dtype
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), tf.cast(expected, tf.float32), atol=atol
        )


def test_a_constant_row_is_finite():
    mine, _ = _layers("float32", 16)
    y, gradient, *_ = _run(mine, tf.ones((1, 16)), tf.ones((1, 16)))
    assert np.isfinite(y).all() and np.isfinite(gradient).all()


def test_second_derivatives_equal_those_of_keras():
    mine, theirs = _layers("float64", 8)
    x = tf.constant(RNG.normal(size=(3, 8)))

    def penalty(layer):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x) ** 3)
            loss = tf.reduce_sum(inner.gradient(loss, x) ** 2)
        return outer.gradient(loss, x)

    np.testing.assert_allclose(penalty(mine), penalty(theirs), rtol=1e-6)
