"""What attention drops, and its precision; golden_tf1_test.py has its numbers."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.kernels.device import Device
from albert_tf.layers.attention import (
    AUTO,
    CUDNN,
    FUSED,
    MATMUL,
    SPLASH,
    TORCH,
    XLA,
    SelfAttention,
    attention_bias,
    attention_form,
    choose_attention,
    kernel_for,
)
from albert_tf.layers.encoder import SharedEncoder
from tests.tiny import CONFIG

B, T, D, N = 2, 7, 12, 3
TPU = Device(tpu=True)


@pytest.fixture
def layer():
    layer = SelfAttention(CONFIG, seed=3)
    layer.build()
    for number, weight in enumerate(layer.weights):
        if weight.name == "bias":
            values = np.random.default_rng(number).normal(size=weight.shape)
            weight.assign(values)
    return layer


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def test_probs_dropout_acts_on_the_probabilities_but_not_on_those_returned(layer, x):
    output, probs = layer(x, probs_dropout=lambda p: p * 0)
    bias = np.broadcast_to(layer.dense["output"].bias, (B, T, D))
    np.testing.assert_allclose(output, bias, atol=1e-7)
    np.testing.assert_allclose(np.sum(probs, -1), np.ones((B, N, T)), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_keeps_the_softmax_exact(x, policy):
    layer = SelfAttention(CONFIG, seed=3, dtype=policy)
    layer.build()
    x16 = keras.ops.cast(x, layer.compute_dtype)
    mask = np.ones((B, T), "int32")
    mask[:, 5:] = 0
    output, probs = layer(x16, bias=attention_bias(mask))
    assert output.dtype == probs.dtype == tf.as_dtype(layer.compute_dtype)
    assert layer.dense["query"].kernel.dtype == "float32"
    np.testing.assert_array_equal(keras.ops.cast(probs, "float32")[..., 5:], 0)
    assert np.isfinite(keras.ops.cast(output, "float32")).all()


@pytest.mark.parametrize(
    "choice, changes",
    [
        (CUDNN, {}),
        (CUDNN, {"device": Device(10), "dtype": "float16", "head_size": 128}),
        (CUDNN, {"length": 7}),
        (CUDNN, {"form": FUSED, "packed": True}),
        (MATMUL, {"form": MATMUL}),
        (MATMUL, {"device": Device(7)}),  # older than Ampere
        (MATMUL, {"device": Device()}),
        (MATMUL, {"dtype": "float32"}),
        (MATMUL, {"head_size": 4}),
        (MATMUL, {"head_size": 136}),
        (MATMUL, {"packed": True, "length": 7}),
        (XLA, {"form": FUSED, "device": Device()}),
        (SPLASH, {"device": TPU, "packed": True}),
        (SPLASH, {"device": TPU, "dtype": "float32", "head_size": 128, "length": 384}),
        (MATMUL, {"device": TPU, "form": MATMUL}),
        (MATMUL, {"device": TPU, "dtype": "float16"}),
        (MATMUL, {"device": TPU, "head_size": 32}),
        (MATMUL, {"device": TPU, "length": 200}),
        (MATMUL, {"device": TPU, "length": None}),
        (XLA, {"device": TPU, "form": FUSED, "length": 200}),
        (XLA, {"form": FUSED, "dtype": "float32"}),
        (TORCH, {"backend": "torch", "dtype": "float32", "head_size": 4}),
        (MATMUL, {"backend": "torch", "form": MATMUL}),
        (MATMUL, {"backend": "tensorflow"}),
    ],
)
def test_choice(choice, changes):
    values = {"form": AUTO, "backend": "jax", "device": Device(8)}
    values |= {
        "dtype": "bfloat16",
        "head_size": 64,
        "length": 512,
        "packed": False,
        **changes,
    }
    assert choose_attention(**values) == choice


def test_forms_that_are_refused():
    with pytest.raises(UsageError, match="'flash': must be 'auto'"):
        attention_form("flash").__enter__()
    encoder = SharedEncoder(CONFIG)
    encoder.build()
    with (
        attention_form("fused"),
        pytest.raises(UsageError, match="tensorflow has no fused"),
    ):
        encoder(np.zeros((B, T, 6), "float32"), every_layer=False)


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("", CUDNN),
        ("--x=1 --xla_gpu_deterministic_ops=true", MATMUL),
        ("--xla_gpu_deterministic_ops", MATMUL),
        ("--xla_gpu_deterministic_ops=true --xla_gpu_deterministic_ops=false", CUDNN),
    ],
)
@pytest.mark.backends
def test_a_fixed_order_leaves_cudnn_out(monkeypatch, flags, expected):
    jax = pytest.importorskip("jax")
    gpu = types.SimpleNamespace(compute_capability="9.0", platform="gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert kernel_for("bfloat16", 64, 512, packed=False) == expected
