"""Near 65,504, float16's largest number, values and gradients are those of float64.

`make test-backends` runs this file with the other backends of Keras, too.
"""

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf.config import ACTIVATIONS
from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.configured import Dense
from albert_tf.layers.gradients import LayerNorm, get_activation
from tests.tiny import tiny_config

BACKEND = keras.backend.backend()
TRUTH = "float64" if BACKEND == "tensorflow" else "float32"
LIMIT = 65504.0


def both(function, x, upstream):
    """Returns the value of a function and its gradient."""
    x, upstream = ops.convert_to_tensor(x), ops.convert_to_tensor(upstream)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x, upstream)
    if BACKEND == "jax":
        import jax

        y, pull = jax.vjp(function, x)
        return y, pull(upstream)[0]
    x.requires_grad_()
    y = function(x)
    y.backward(upstream)
    return y, x.grad


def check(make, x, upstream):
    """Compares value and gradient of a layer in float16 with the truth."""
    found = []
    for dtype, name in (("float16", "mixed_float16"), (TRUTH, TRUTH)):
        given = (values.astype("float16").astype(dtype) for values in (x, upstream))
        found.append([ops.convert_to_numpy(v) for v in both(make(name), *given)])
    for half, truth in zip(*found, strict=True):
        assert half.dtype == "float16" and np.isfinite(half).all()
        # A few roundings to 11 bits, relative to the largest number of a row.
        scale = np.maximum(np.abs(truth).max(-1, keepdims=True), 1.0)
        assert (np.abs(half.astype("float64") - truth) / scale).max() < 3e-3


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    sizes = [LIMIT, 4e4, 4096, 256, 255, 20, 5, 1, 0.1, 6e-5, 6e-8, 0]
    x = np.array([[size, -size] for size in sizes]).reshape(-1, 1)
    check(lambda _: get_activation(name), x, np.linspace(2, -1, len(x))[:, None])


def test_layer_norm():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-LIMIT, LIMIT, (6, 24))
    rows[0] = [LIMIT, -LIMIT] * 12
    rows[1] = [LIMIT] * 23 + [-LIMIT]
    rows[2] = [LIMIT] + [0] * 23
    rows[3:5] *= 1e-7

    def norm(dtype):
        layer = LayerNorm(1e-12, dtype=dtype)
        layer.build((None, 24))
        return layer

    check(norm, rows, rng.normal(size=rows.shape))


def test_softmax():
    """Scores of up to 16 * 127 ** 2 / 4 = 64,516; a masked token in the second row."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (2, 5, 16))
    x[:, 0], x[:, 1], x[1, 2] = 127, -127, 40
    mask = np.zeros((2, 1, 1, 5), "float32")
    mask[1, ..., 3] = -10000

    def attention(dtype):
        config = tiny_config(hidden_size=16, num_attention_heads=1)
        layer = SelfAttention(config, dtype=dtype)
        layer.build()
        one, zero = np.eye(16), np.zeros(16)
        layer.set_weights([w for _ in range(4) for w in (one, zero)])
        return lambda x: layer(x, bias=ops.convert_to_tensor(mask))[0]

    check(attention, x, rng.normal(size=x.shape) / 64)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_gradient_of_a_bias_is_summed_in_float32(dtype):
    layer = Dense(8, dtype=dtype)
    layer.build((None, None, 1))

    def add(bias):
        with keras.StatelessScope(state_mapping=[(layer.bias, bias)]):
            return layer(ops.zeros((20, 1000, 1)))

    ones = ops.ones((20, 1000, 8), layer.compute_dtype)
    _, gradient = both(add, np.zeros(8, "float32"), ones)
    np.testing.assert_allclose(ops.convert_to_numpy(gradient), 20_000, rtol=5e-3)
