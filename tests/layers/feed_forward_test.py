"""The feed-forward part against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.feed_forward import FeedForward

B, T, D, F = 2, 7, 12, 20


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def test_values(x):
    layer = FeedForward(D, F, "tanh", initializer_range=0.5, seed=3)
    layer.build()
    layer.intermediate.bias.assign(np.linspace(-1, 1, F))
    layer.output_dense.bias.assign(np.arange(D))
    w1, b1, w2, b2 = (w.numpy() for w in layer.weights)
    assert w1.shape == (D, F) and w2.shape == (F, D)
    np.testing.assert_allclose(layer(x), np.tanh(x @ w1 + b1) @ w2 + b2, atol=1e-5)
    np.testing.assert_array_equal(layer(x), layer(x, weights=layer.read()))


def test_the_activation_is_the_one_named(x):
    outputs = [
        np.array(FeedForward(D, F, name, 0.5, seed=3)(x))
        for name in ("gelu", "gelu_new", "relu")
    ]
    assert 1e-4 < np.abs(outputs[0] - outputs[1]).max() < 1e-2
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-2


def test_seeds_and_dtype(x):
    layer = FeedForward(D, F, seed=3, dtype="mixed_bfloat16")
    copy = FeedForward.from_config(layer.get_config())
    np.testing.assert_array_equal(layer(x), copy(x))
    assert layer(x).dtype == tf.bfloat16
    assert layer.read().output_kernel.dtype == tf.bfloat16
    assert {w.dtype for w in layer.weights} == {"float32"}
