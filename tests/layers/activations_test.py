"""The exact gelu and its tanh approximation are different activations."""

import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ACTIVATIONS
from albert_tf.layers.activations import get_activation

X = np.linspace(-4, 4, 33).astype("float32")
EXPECTED = {
    "gelu": [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in X],
    "gelu_new": 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
    "relu": np.maximum(X, 0),
    "tanh": np.tanh(X),
    "silu": X / (1 + np.exp(-X)),
    "linear": X,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name):
    np.testing.assert_allclose(get_activation(name)(X), EXPECTED[name], atol=2e-6)


def test_the_gelus_differ():
    assert np.abs(np.subtract(EXPECTED["gelu"], EXPECTED["gelu_new"])).max() > 4e-4


def test_the_gradient_of_gelu_equals_the_derived_one():
    x = tf.constant(np.linspace(-12, 12, 481), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        mine = get_activation("gelu_new")(x)
        theirs = tf.nn.gelu(x, approximate=True)
    np.testing.assert_allclose(
        tape.gradient(mine, x), tape.gradient(theirs, x), atol=6e-6
    )


def test_the_second_derivative_of_gelu_equals_the_derived_one():
    x = tf.constant(np.linspace(-4, 4, 161))

    def second(function):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            slope = inner.gradient(y, x)
        return outer.gradient(slope, x)

    np.testing.assert_allclose(
        second(get_activation("gelu_new")),
        second(lambda x: tf.nn.gelu(x, approximate=True)),
        atol=1e-9,
    )
