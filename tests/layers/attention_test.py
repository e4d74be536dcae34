"""Self-attention against a loop over heads in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.attention import SelfAttention, attention_bias

B, T, D, N = 2, 7, 12, 3
H = D // N


@pytest.fixture
def layer():
    layer = SelfAttention(D, N, initializer_range=0.5, seed=3)
    layer.build()
    for number, weight in enumerate(layer.weights):
        if weight.name == "bias":
            values = np.random.default_rng(number).normal(size=weight.shape)
            weight.assign(values)
    return layer


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def by_hand(layer, x, visible):
    """`[B, T, D]` and `[B, N, T, T]`; `visible` is bool `[B, T, T]`."""
    w = {
        name: (np.float64(dense.kernel), np.float64(dense.bias))
        for name, dense in layer.dense.items()
    }
    output, probs = np.zeros((B, T, D)), np.zeros((B, N, T, T))
    for b in range(B):
        q, k, v = (x[b] @ w[n][0] + w[n][1] for n in ("query", "key", "value"))
        for n in range(N):
            part = slice(n * H, (n + 1) * H)
            scores = q[:, part] @ k[:, part].T / np.sqrt(H)
            probs[b, n] = softmax(np.where(visible[b], scores, -np.inf))
            output[b, :, part] = probs[b, n] @ v[:, part]
    return output @ w["output"][0] + w["output"][1], probs


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "float32"])
def test_padding_is_not_attended(layer, x, dtype):
    mask = np.ones((B, T), dtype)
    mask[0, 2] = mask[1, 4:] = 0
    output, probs = layer(x, bias=attention_bias(mask))
    visible = np.broadcast_to(mask.astype(bool)[:, None], (B, T, T))
    expected, expected_probs = by_hand(layer, x, visible)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(probs, expected_probs, atol=1e-6)


def test_packed_examples_see_themselves_only(layer, x):
    packs = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 3, 3, 3, 3]])
    bias = attention_bias(np.zeros((B, T)), packs)  # the mask does not matter then
    assert bias.shape == (B, 1, T, T)
    output, probs = layer(x, bias=bias)
    expected, expected_probs = by_hand(layer, x, packs[:, :, None] == packs[:, None])
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(probs, expected_probs, atol=1e-6)


def test_probs_dropout_acts_on_the_probabilities_but_not_on_those_returned(layer, x):
    output, probs = layer(x, probs_dropout=lambda p: p * 0)
    bias = np.broadcast_to(layer.dense["output"].bias, (B, T, D))
    np.testing.assert_allclose(output, bias, atol=1e-7)
    np.testing.assert_allclose(np.sum(probs, -1), np.ones((B, N, T)), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_keeps_the_softmax_exact(x, policy):
    layer = SelfAttention(D, N, initializer_range=0.5, seed=3, dtype=policy)
    layer.build()
    x16 = keras.ops.cast(x, layer.compute_dtype)
    mask = np.ones((B, T), "int32")
    mask[:, 5:] = 0
    output, probs = layer(x16, bias=attention_bias(mask))
    assert output.dtype == probs.dtype == tf.as_dtype(layer.compute_dtype)
    assert layer.dense["query"].kernel.dtype == "float32"
    np.testing.assert_array_equal(keras.ops.cast(probs, "float32")[..., 5:], 0)
    assert np.isfinite(keras.ops.cast(output, "float32")).all()
