"""Fused attention is the same function as two products and a softmax."""

import functools

import keras
import numpy as np
import pytest

from albert_tf.kernels.device import Device, compiling_for
from albert_tf.layers.attention import (
    AUTO,
    FUSED,
    MATMUL,
    Readers,
    attention_form,
    padding_last,
)
from albert_tf.layers.depth import depth_form
from albert_tf.layers.dropout import StepSeeds
from albert_tf.layers.encoder import SharedEncoder
from tests.backends.differentiate import assert_close, value_and_gradients
from tests.tiny import tiny_config

BACKEND = keras.backend.backend()
B, T, E = 4, 8, 6
LAYERS = 2
PADDED = np.array([[1] * 8, [1] * 5 + [0] * 3, [1] + [0] * 7, [0, 1, 0, 1, 1, 0, 1, 0]])
PACKED = [[1, 1, 1, 2, 2, 2, 2, 0], [1] * 8, [0] * 8, [1, 1, 2, 2, 3, 3, 0, 0]]
ROWS = {
    "whole": {},
    "padded": {"padding_mask": PADDED.astype("int32")},
    "packed": {"pack_ids": np.array(PACKED, "int32")},
}


def make(dtype="float32", **changes):
    changes = {"hidden_size": 16, "num_attention_heads": 2, **changes}
    changes = {"num_hidden_layers": LAYERS, "initializer_range": 0.2, **changes}
    config = tiny_config(**changes)
    encoder = SharedEncoder(config, 3, dtype=dtype)
    encoder.build()
    return encoder


def train(encoder, form, depth="unrolled", training=False, device=None, **rows):
    length = max([T, *(x.shape[1] for x in rows.values() if hasattr(x, "shape"))])
    x = np.random.default_rng(0).normal(size=(B, length, E)).astype("float32")
    x = keras.ops.cast(x, encoder.compute_dtype)

    # What a GPU computes with a fused kernel, with XLA's on a CPU.
    is_gpu = form == FUSED and encoder.compute_dtype == "float32"
    device = device or Device(9 if is_gpu else 0)

    def run():
        ways = compiling_for(device)
        with attention_form(form), depth_form(depth), ways:
            ways = {"training": training, "every_layer": False}
            found = encoder(x, seeds=StepSeeds(3, 5), **ways, **rows)
        return found.sequence_output

    return value_and_gradients(run, encoder.trainable_variables)


@functools.cache
def products(rows):
    return train(make(), MATMUL, **ROWS[rows])


# All kinds of rows, and all depths.
CASES = [("whole", "unrolled"), ("padded", "loop"), ("packed", "loop_remat")]
# Rows in one block of the kernel, and in several.
TPU_CASES = [("padded", "loop_remat", 32), ("packed", "unrolled", 80)]


@pytest.mark.parametrize(("rows", "depth"), [*CASES, ("padded", "loop_remat")])
def test_float32(rows, depth):
    found = train(make(), FUSED, depth, **ROWS[rows])
    assert_close(found, products(rows), 1e-5, 1e-5)


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_bfloat16(rows):
    encoder = make("mixed_bfloat16", initializer_range=0.1)
    right = train(encoder, MATMUL, **ROWS[rows])
    assert_close(train(encoder, FUSED, **ROWS[rows]), right, 0.02, 0.02)


def test_a_row_without_tokens_attends_as_if_unmasked():
    encoder, whole = make(), products("whole")
    mask = np.zeros((B, T), "int32")
    # Half of the digits of a score are lost where -10,000 is added to it.
    rate = 1e-3 if BACKEND == "torch" else 1e-5
    assert_close(train(encoder, FUSED, padding_mask=mask), whole, rate, rate)
    assert_close(train(encoder, MATMUL, padding_mask=mask), whole, 1e-3, 1e-3)


def test_padding_last_moves_no_tokens():
    rows = {"padding_mask": PADDED[:3].astype("int32")[[0, 1, 2, 1]]}
    right = train(make(), MATMUL, **rows)
    with padding_last():
        found = train(make(), FUSED, **rows)
    assert_close(found, right, 1e-5, 1e-5)


@pytest.mark.skipif(BACKEND != "jax", reason="Only JAX has a TPU's kernel")
@pytest.mark.parametrize(("rows", "depth", "times"), [*TPU_CASES])
def test_the_kernel_of_a_tpu(rows, depth, times, monkeypatch):
    from jax.experimental.pallas.ops.tpu import splash_attention

    kernel, made = splash_attention.make_splash_mha, []

    def interpreted(*args, **options):
        made.append(options["block_sizes"].block_q)
        return kernel(*args, **options, interpret=True)

    monkeypatch.setattr(splash_attention, "make_splash_mha", interpreted)
    # The third row of both has no real tokens, or hardly any.
    rows = {name: np.repeat(ids, times, axis=1) for name, ids in ROWS[rows].items()}
    encoder = make(hidden_size=128, initializer_range=0.1)
    right = train(encoder, MATMUL, depth, **rows)
    assert not made
    found = train(encoder, AUTO, depth, device=Device(tpu=True), **rows)
    assert set(made) == {256 if times == 32 else 128}
    assert_close(found, right, 1e-5, 1e-5)


def test_readers_find_their_tokens():
    encoder = make()
    rows = ROWS["padded"] | {"readers": Readers(np.arange(B, dtype="int32") * T + 3)}
    right = train(encoder, MATMUL, **rows)
    assert right[0].shape == (B, 1, 16)
    assert_close(train(encoder, FUSED, **rows), right, 1e-5, 1e-5)


def test_dropout():
    # The same masks of hidden states, where no token moves.
    rows = {"padding_mask": np.sort(PADDED.astype("int32"))[:, ::-1], "training": True}
    encoder = make(hidden_dropout_prob=0.2, num_hidden_layers=1)
    right = train(encoder, MATMUL, **rows)
    assert_close(train(encoder, FUSED, **rows), right, 1e-5, 1e-5)
    assert (
        np.abs(right[0] - train(make(num_hidden_layers=1), MATMUL, **rows)[0]).max()
        > 0.1
    )
    # A kernel cannot drop probabilities.
    encoder = make(attention_probs_dropout_prob=0.3, num_hidden_layers=1)
    right = train(encoder, MATMUL, **rows)
    assert_close(train(encoder, FUSED, **rows), right, 1e-5, 1e-5)


def test_who_asks_for_probabilities_gets_them():
    encoder = make()
    x = np.zeros((B, T, E), "float32")
    with attention_form(FUSED):
        found = encoder(x, **ROWS["padded"])
        assert encoder(x, **ROWS["padded"], every_layer=False).attentions == ()
    assert [tuple(p.shape) for p in found.attentions] == LAYERS * [(B, 2, T, T)]


@pytest.mark.skipif(BACKEND != "jax", reason="Only JAX calls cuDNN")
@pytest.mark.parametrize(("rows", "depth"), [*CASES, ("packed", "unrolled")])
def test_operations_of_cudnn(rows, depth, monkeypatch):
    # Lowered for a GPU, on any machine.
    import jax
    from jax._src.cudnn import fused_attention_stablehlo

    monkeypatch.setattr(
        fused_attention_stablehlo, "check_cudnn_version", lambda: 91_000
    )
    encoder = make("mixed_bfloat16", hidden_size=32)
    values = [v.value for v in encoder.trainable_variables]
    x = np.zeros((B, T, E), "bfloat16")

    def loss(values):
        with depth_form(depth):
            found, _ = encoder.stateless_call(
                values, [], x, every_layer=False, **ROWS[rows]
            )
        return found.sequence_output.astype("float32").sum()

    with compiling_for(Device(8)):
        traced = jax.jit(jax.grad(loss)).trace(values)
    lowered = traced.lower(lowering_platforms=("cuda",))
    text = lowered.as_text()
    name = "ScaleBiasSoftmax" if rows == "packed" else "Softmax"
    number = LAYERS if depth == "unrolled" else 1
    forward = 2 if depth == "loop_remat" else number  # once more, going back
    assert text.count("@__cudnn$") == forward + number
    assert text.count(f"@__cudnn$fmha{name}(") == forward
    assert text.count(f"@__cudnn$fmha{name}Backward(") == number
    assert "x2x8x8x" not in text  # probabilities
