"""TensorFlow's kernel makes the weights of the update written out in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.kernels.adam import apply_adam


@pytest.mark.parametrize("beta_2", [0.999, 0.98])
def test_twenty_steps_equal_float64(beta_2):
    rng = np.random.default_rng(0)
    w = rng.normal(size=64).astype("float32")
    variables = [keras.Variable(value) for value in (w, w * 0, w * 0)]
    w, m, v = w.astype("float64"), np.zeros(64), np.zeros(64)
    for _ in range(20):
        gradient = rng.normal(size=64).astype("float32") * 1e-4
        apply_adam(*variables, tf.constant(gradient), 0.01, 0.9, beta_2, 1e-6)
        m = 0.9 * m + 0.1 * gradient
        v = beta_2 * v + (1 - beta_2) * gradient.astype("float64") ** 2
        w -= 0.01 * m / (np.sqrt(v) + 1e-6)
    np.testing.assert_allclose(variables[0].numpy(), w, atol=5e-7)
    np.testing.assert_allclose(variables[1].numpy(), m, rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(variables[2].numpy(), v, rtol=2e-5)
