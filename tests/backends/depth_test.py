"""Layers in a loop are the same function as layers one after another."""

import keras
import numpy as np
import pytest

from albert_tf.layers.attention import Readers
from albert_tf.layers.depth import depth_form, repeat
from albert_tf.layers.dropout import StepSeeds
from albert_tf.layers.encoder import SharedEncoder
from tests.backends.differentiate import assert_close, value_and_gradients
from tests.tiny import tiny_config

B, T, E = 2, 7, 6
# Their weights are shared by groups, or by groups of inner blocks, not by all.
GROUPS = {"num_hidden_layers": 4, "num_hidden_groups": 2}
INNER = {"num_hidden_layers": 2, "inner_group_num": 2}
# And layers have weights of their own.
OWN = {"depth_rank": 2, "depth_embedding": True}
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}


def make(dtype="float32", **changes):
    sizes = {"num_hidden_layers": 3, "initializer_range": 0.2}
    config = tiny_config(**{**sizes, **DROPOUT, **changes})
    encoder = SharedEncoder(config, 3, dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(1)
    for weight in encoder.trainable_weights:  # norms and biases, too
        weight.assign(keras.ops.add(weight, 0.1 * rng.normal(size=weight.shape)))
    return encoder


def train(encoder, form, reads=False):
    x = np.random.default_rng(0).normal(size=(B, T, E)).astype("float32")
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], "int32")
    ways = {"training": True, "every_layer": False}
    if reads:
        ways["readers"] = Readers(np.arange(B, dtype="int32") * T)
        ways["pack_ids"] = 1 + np.cumsum(mask, -1, dtype="int32") // 4
    else:
        ways["padding_mask"] = mask

    def run():
        with depth_form(form):
            found = encoder(x, seeds=StepSeeds(3, 5), **ways)
        return found.sequence_output

    return value_and_gradients(run, encoder.trainable_variables)


def test_groups_in_float32():
    right = train(make(**GROUPS, **OWN), "unrolled")
    assert_close(train(make(**GROUPS, **OWN), "loop_remat"), right, 2e-6, 1e-5)


def test_readers_are_outside_of_the_loop():
    right = train(make(**INNER), "unrolled", reads=True)
    assert right[0].shape == (B, 1, 12)
    found = train(make(**INNER), "loop_remat", reads=True)
    assert_close(found, right, 2e-6, 1e-5)


def test_bfloat16():
    one, right = (train(make("mixed_bfloat16"), x) for x in ("loop", "unrolled"))
    assert_close(one, right, 0.02, 0.02)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_in_a_loop_are_summed_in_float32(recompute):
    weight = keras.Variable(np.zeros(3))

    def run():
        x = keras.ops.zeros((1, 2, 3), "bfloat16")
        own = [keras.ops.cast(weight, "bfloat16")]
        return repeat(lambda number, x, own: x + own[0], x, 1000, own, recompute)

    count = np.float32(1000)  # bfloat16 cannot add 1 to 256
    value, gradient = value_and_gradients(run, [weight])
    weights = np.random.default_rng(7).normal(size=value.shape).sum((0, 1))
    np.testing.assert_allclose(gradient, count * weights, rtol=0.01)
