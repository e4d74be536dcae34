"""The heads' layers against NumPy, and the gathering of positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.dropout import Dropout
from albert_tf.layers.embedding import FactorizedEmbedding
from albert_tf.layers.encoder import SharedEncoder
from albert_tf.layers.feed_forward import FeedForward
from albert_tf.layers.heads import (
    Answerability,
    AnswerEnd,
    ExitHead,
    MaskedLMHead,
)
from albert_tf.layers.ops import gather_positions, truncated_normal_dense
from tests.tiny import tiny_config

B, P, T = 2, 3, 7
PARTS = ("kernel", "bias")
CONFIG = tiny_config(vocab_size=53, hidden_act="tanh")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_gather_positions(rng):
    x = rng.normal(size=(B, T, 5)).astype("float32")
    positions = np.array([[6, 0, 0], [1, 1, 3]], "int32")
    expected = np.stack([row[at] for row, at in zip(x, positions, strict=True)])
    np.testing.assert_array_equal(gather_positions(x, positions), expected)


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


def test_logits(rng):
    head = MaskedLMHead(CONFIG, seed=3)
    x = rng.normal(size=(B, P, 12)).astype("float32")
    table = rng.normal(size=(53, 6)).astype("float32")
    head.build()
    head.output_bias.assign(np.arange(53))
    inner = np.tanh(x @ head.dense.kernel.numpy()).astype("float64")
    inner -= inner.mean(-1, keepdims=True)
    inner /= inner.std(-1, keepdims=True)
    np.testing.assert_allclose(
        head(x, table), inner @ table.T + np.arange(53), atol=1e-4
    )


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
        FactorizedEmbedding(53, 6, 11, 3, 0.5, 1e-5, dropout=0.2, seed=3),
        FeedForward(12, 20, seed=3, dtype="mixed_bfloat16"),
        SelfAttention(12, 3, initializer_range=0.5, seed=3),
        Dropout(0.3, seed=4, name="d"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_survives(layer):
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


def test_an_exit(rng):
    config = CONFIG.replace(classifier_dropout_prob=0.5)
    layer = ExitHead(config, 5, seed=3, dtype="mixed_bfloat16", name="exit_1")
    layer.build()
    names = [variable.path.partition("/")[2] for variable in layer.weights]
    assert names == [f"{a}/{b}" for a in ("pooler", "classifier") for b in PARTS]
    copy = ExitHead(config, 5, seed=3)
    x = rng.normal(size=(B, 12)).astype("float32")
    logits = copy(x)
    pooled = np.tanh(x @ copy.pooler.kernel.numpy())
    np.testing.assert_allclose(logits, pooled @ copy.classifier.kernel, atol=1e-5)
    assert np.abs(copy(x, training=True) - logits).max() > 1e-3
    assert keras.backend.standardize_dtype(layer(x).dtype) == "float32"


def test_dense_starts_as_the_original():
    dense = truncated_normal_dense(40, 0.02, seed=1)
    dense.build((None, 400))
    kernel = dense.kernel.numpy()
    assert np.abs(kernel).max() <= 0.04
    assert np.std(kernel) == pytest.approx(0.0176, rel=0.03)
    assert not np.any(dense.bias)


def test_ends_are_scored_from_the_joined_vectors(rng):
    layer = AnswerEnd(CONFIG.replace(layer_norm_eps=1e-12), seed=3)
    layer.build()
    for variable in layer.weights:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    x = rng.normal(size=(B, T, 12)).astype("float32")
    starts = rng.normal(size=(B, 4, 12)).astype("float32")
    shape = (B, 4, T, 12)
    joined = [np.broadcast_to(x[:, None], shape)]
    joined = np.concatenate([*joined, np.broadcast_to(starts[:, :, None], shape)], -1)
    expected = layer.dense_1(layer.layer_norm(np.tanh(layer.dense_0(joined))))
    found = layer(x, starts)
    np.testing.assert_allclose(found, np.squeeze(expected, -1), atol=1e-5)
    assert found.shape == layer.compute_output_shape(x.shape, starts.shape)


def test_answerability_has_no_bias_and_drops_only_in_training(rng):
    layer = Answerability(CONFIG.replace(classifier_dropout_prob=0.5), seed=3)
    layer.build()
    names = [variable.path.partition("/")[2] for variable in layer.weights]
    assert names == ["dense_0/kernel", "dense_0/bias", "dense_1/kernel"]
    x, first = rng.normal(size=(2, B, 12)).astype("float32")
    joined = np.concatenate([x, first], -1)
    inner = np.tanh(joined @ layer.dense_0.kernel.numpy())
    expected = (inner @ layer.dense_1.kernel.numpy())[:, 0]
    np.testing.assert_allclose(layer(x, first), expected, atol=1e-5)
    trained = [layer(x, first, training=True) for _ in range(2)]
    assert np.abs(trained[0] - trained[1]).max() > 1e-3


@pytest.mark.parametrize("kind", [AnswerEnd, Answerability])
def test_the_beam_head_is_float32_under_every_policy(kind):
    layer = kind(CONFIG, seed=3, dtype="mixed_float16")
    layer.build()
    assert layer.compute_dtype == "float32"
    assert {variable.dtype for variable in layer.weights} == {"float32"}
