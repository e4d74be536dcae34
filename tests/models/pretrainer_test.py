"""The pretrainer's heads sit where they should."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.objectives.pretraining import pretraining_loss

B, T, P, V, D = 2, 7, 3, 53, 12
CONFIG = AlbertConfig(
    vocab_size=V,
    embedding_size=6,
    hidden_size=D,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
    initializer_range=0.1,
)


@pytest.fixture(scope="module")
def model():
    return AlbertPretrainer(CONFIG, seed=3)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "token_ids": rng.integers(0, V, (B, T)).astype("int32"),
        "mask_positions": np.array([[2, 5, 0], [1, 0, 0]], "int32"),
        "mask_ids": rng.integers(0, V, (B, P)).astype("int32"),
        "mask_weights": np.array([[1, 1, 0], [1, 0, 0]], "float32"),
        "sentence_order_labels": np.array([0, 1], "int32"),
    }


def test_outputs(model, batch):
    out = model(batch)
    assert {k: tuple(v.shape) for k, v in out.items()} == {
        "mlm_logits": (B, P, V),
        "sop_logits": (B, 2),
        "sequence_output": (B, T, D),
        "pooled_output": (B, D),
    }


def test_logits_are_those_of_the_positions(model, batch):
    out = model(batch)
    everywhere = model.mlm_head(out["sequence_output"], model.backbone.word_embeddings)
    for row, positions in enumerate(batch["mask_positions"]):
        np.testing.assert_allclose(
            out["mlm_logits"][row], everywhere.numpy()[row, positions], atol=1e-5
        )


def test_the_output_table_is_the_input_table(model, batch):
    before = model(batch)["mlm_logits"].numpy()
    table = model.backbone.word_embeddings
    old = table.numpy()
    unused = next(i for i in range(V) if i not in batch["token_ids"])
    try:
        new = old.copy()
        new[unused] += np.arange(6)
        table.assign(new)
        after = model(batch)["mlm_logits"].numpy()
    finally:
        table.assign(old)
    changed = np.abs(after - before).max((0, 1)) > 1e-4
    assert list(np.flatnonzero(changed)) == [unused]
    np.testing.assert_array_equal(
        np.delete(after, unused, -1), np.delete(before, unused, -1)
    )


def test_sentence_order_of_packed_rows(model, batch):
    packed = {
        **batch,
        "pack_ids": np.array([[1, 1, 1, 2, 2, 2, 0]] * B, "int32"),
        "position_ids": np.array([[0, 1, 2, 0, 1, 2, 0]] * B, "int32"),
        "cls_positions": np.array([[0, 3]] * B, "int32"),
    }
    assert model(packed)["sop_logits"].shape == (B, 2, 2)


def test_training_lowers_the_loss(batch):
    model = AlbertPretrainer(CONFIG, seed=3)
    optimizer = keras.optimizers.Adam(0.01)
    variables = model.trainable_variables

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = pretraining_loss(model(batch, training=True), batch)["loss"]
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
        return loss

    optimizer.build(variables)
    losses = [float(step()) for _ in range(30)]
    assert losses[0] > 4
    assert losses[-1] < 0.2 * losses[0]
