"""The heads' layers against NumPy, and the gathering of positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.dropout import Dropout
from albert_tf.layers.embedding import FactorizedEmbedding
from albert_tf.layers.encoder import FeedForward, SharedEncoder
from albert_tf.layers.gathering import gather_positions
from albert_tf.layers.heads import Answerability, AnswerEnd, ExitHead, MaskedLMHead
from tests.tiny import tiny_config

B, P, T = 2, 3, 7
PARTS = ("kernel", "bias")
CONFIG = tiny_config(vocab_size=53, hidden_act="tanh")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_gradients_of_gathered_positions(rng):
    x = tf.constant(rng.normal(size=(B, T, 5)).astype("float32"))
    positions = tf.constant([[6, 0, 0], [1, 1, 3]])  # 0 and 1 twice: their sum
    weights = rng.normal(size=(B, 3, 5)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec([None, None, 5])])
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(gather_positions(x, positions) * weights)
        return tape.gradient(loss, x)

    expected = np.zeros((B, T, 5), "float32")
    for row in range(B):
        np.add.at(expected[row], positions[row].numpy(), weights[row])
    np.testing.assert_allclose(gradient(x), expected, rtol=1e-6)


def test_positions_are_gathered_by_rows():
    # take_along_axis gathers number by number: 7 times the time.
    @tf.function
    def gather(x, positions):
        return gather_positions(x, positions)

    spec = tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, None], tf.int32)
    operations = gather.get_concrete_function(*spec).graph.get_operations()
    (gathered,) = [o for o in operations if o.type.startswith("Gather")]
    assert gathered.type == "GatherV2"
    assert gathered.inputs[0].shape.as_list() == [None, 5]


def test_logits_are_float32_and_the_bias_is_added_in_it(rng):
    head = MaskedLMHead(CONFIG, seed=3, dtype="mixed_bfloat16")
    x = rng.normal(size=(B, P, 12)).astype("float32")
    head.build()
    head.output_bias.assign(np.full(53, 1000.123))
    logits = head(x, np.zeros((53, 6), "float32"))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(logits, 1000.123, rtol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        MaskedLMHead(CONFIG, seed=3),
        AnswerEnd(CONFIG, seed=3),
        Answerability(CONFIG, seed=3),
        ExitHead(CONFIG, 5, seed=3, dtype="mixed_bfloat16", name="exit_1"),
        SharedEncoder(CONFIG.replace(sharing="ffn", hidden_dropout_prob=0.1)),
        FactorizedEmbedding(CONFIG, seed=3),
        FeedForward(CONFIG, seed=3, dtype="mixed_bfloat16"),
        SelfAttention(CONFIG, seed=3),
        Dropout(0.3, seed=4, name="d"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_survives(layer):
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


def test_dense_starts_as_the_original():
    layer = FeedForward(CONFIG.replace(initializer_range=0.02), seed=1)
    dense = layer.add_dense(40, "any")
    dense.build((None, 400))
    kernel = dense.kernel.numpy()
    assert np.abs(kernel).max() <= 0.04
    assert np.std(kernel) == pytest.approx(0.0176, rel=0.03)
    assert not np.any(dense.bias)
