"""The factorized embedding against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.embedding import FactorizedEmbedding
from tests.tiny import tiny_config

V, E, P, S, B, T = 53, 6, 11, 3, 2, 7


def make(dropout=0.0, **kwargs):
    sizes = {"vocab_size": V, "max_position_embeddings": P, "type_vocab_size": S}
    config = tiny_config(hidden_dropout_prob=dropout, **sizes)
    layer = FactorizedEmbedding(config, seed=3, **kwargs)
    layer.build()
    layer.layer_norm.beta.assign(np.arange(E))
    return layer


@pytest.fixture
def ids():
    return np.random.default_rng(0).integers(0, V, (B, T)).astype("int32")


def test_too_long_a_sequence_is_refused():
    layer = make()
    assert layer(np.zeros((1, P), "int32")).shape == (1, P, E)
    with pytest.raises(ValueError, match="at most max_position_embeddings=11, .* 12"):
        layer(np.zeros((1, P + 1), "int32"))
    # Packed rows may be longer, as their positions restart.
    positions = np.arange(P + 1)[None] % 4
    packed = layer(np.zeros((1, P + 1), "int32"), position_ids=positions)
    assert packed.shape == (1, P + 1, E)


def test_too_long_a_sequence_of_dynamic_length_is_refused():
    run = tf.function(make(), input_signature=[tf.TensorSpec((None, None), tf.int32)])
    assert run(tf.zeros((1, 4), tf.int32)).shape == (1, 4, E)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.zeros((1, P + 1), tf.int32))


def table_gradients(policy):
    layer = make(dtype=policy)
    ids = np.full((600, T), 5, "int32")
    ids[:, 0] = np.arange(600) % V
    with tf.GradientTape() as tape:
        x = keras.ops.cast(layer(ids, position_ids=ids % P), "float32")
        loss = tf.reduce_mean(x[..., 0])
    tables = layer.word_embeddings, layer.position_embeddings
    return tape.gradient(loss, [table.value for table in tables])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_gradients_of_the_tables_are_dense_and_in_full_precision(policy):
    # Keras's Adam computes wrong updates for sparse gradients with repeated ids, and
    # a sum of thousands of rows in bfloat16 would stop growing.
    for actual, exact in zip(
        table_gradients(policy), table_gradients("float32"), strict=True
    ):
        assert isinstance(actual, tf.Tensor)
        assert actual.dtype == tf.float32
        error = np.abs(actual - exact).max() / np.abs(exact).max()
        assert error <= (0 if policy == "float32" else 0.02)


def test_dropout_is_after_the_layer_norm(ids):
    layer = make(dropout=0.5)
    x = np.array(layer(ids, training=True))
    dropped = x == 0
    assert 0.2 < dropped.mean() < 0.8
    kept = np.where(dropped, 0, 2 * np.array(layer(ids)))
    np.testing.assert_allclose(x, kept, atol=1e-5)
