"""Every number of the original's tiny model: outputs, losses, gradients, edge cases."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters.tf1 import name_table
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import pretraining_loss
from albert_tf.objectives.terms import cross_entropy
from tests.tf1_weights import golden_batch

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/tf1_tiny/base"
# What the peers agree to, times three. A wrong gelu is 4e-4 off.
TOLERANCE = dict(rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def model():
    return albert_tf.from_pretrained(GOLDEN)


@pytest.fixture(scope="module")
def io():
    return np.load(GOLDEN / "io.npz")


@pytest.fixture(scope="module")
def batch(io):
    return golden_batch(io)


@pytest.fixture(scope="module")
def backbone_outputs(model, batch):
    return model.backbone(batch, output_hidden_states=True, output_attentions=True)


@pytest.fixture(scope="module")
def outputs(model, batch):
    return model(batch)


def assert_close(actual, expected):
    actual = keras.ops.convert_to_numpy(actual)
    np.testing.assert_allclose(actual, expected, **TOLERANCE)


def test_every_state(backbone_outputs, outputs, model, io):
    table = keras.ops.convert_to_numpy(model.backbone.word_embeddings)
    assert_close(table[io["in/input_ids"]], io["out/word_embedding_output"])
    assert_close(backbone_outputs["embedding_output"], io["out/embedding_output"])
    states, maps = backbone_outputs["hidden_states"], backbone_outputs["attentions"]
    assert (len(states), len(maps)) == (5, 4)
    for layer in range(4):
        assert_close(states[1 + layer], io[f"out/layer_{layer:02d}_output"])
        assert_close(maps[layer], io[f"out/attention_probs_{layer:02d}"])
    for name in ("sequence_output", "pooled_output"):
        assert_close(backbone_outputs[name], io[f"out/{name}"])
        assert_close(outputs[name], io[f"out/{name}"])


def test_log_probs(outputs, io):
    log_probs = keras.ops.log_softmax(outputs["mlm_logits"], axis=-1)
    assert_close(np.reshape(log_probs, (20, 1000)), io["out/mlm_log_probs"])
    log_probs = keras.ops.log_softmax(outputs["sop_logits"], axis=-1)
    assert_close(log_probs, io["out/sop_log_probs"])


def test_losses(outputs, batch, io):
    mlm = cross_entropy(outputs["mlm_logits"], batch["mask_ids"])
    assert_close(np.reshape(mlm, -1), io["out/mlm_per_example_loss"])
    sop = cross_entropy(outputs["sop_logits"], batch["sentence_order_labels"])
    assert_close(sop, io["out/sop_per_example_loss"])
    means = pretraining_loss(outputs, batch)
    for name in ("mlm_loss", "sop_loss"):
        assert_close(means[name], io[f"out/{name}"])
    assert_close(means["loss"], io["out/total_loss"])


def test_gradients_of_all_variables(model, batch):
    golden = np.load(GOLDEN / "grads_total_loss.npz")
    weights = weight_names(model)
    with tf.GradientTape() as tape:
        loss = pretraining_loss(model(batch), batch)["loss"]
    variables = {name: w.value for name, w in weights.items()}
    gradients = tape.gradient(loss, variables)
    rows = name_table(model.config)
    assert {row.theirs for row in rows} == set(golden.files)
    assert {row.ours for row in rows} == set(weights)
    assert len(rows) == 32
    for row in rows:
        gradient = gradients[row.ours]
        # Dense, so that Keras's optimizers and the norm for clipping are right.
        assert not isinstance(gradient, tf.IndexedSlices), row.ours
        found, expected = row.turn(gradient.numpy()), golden[row.theirs]
        np.testing.assert_allclose(found, expected, **TOLERANCE, err_msg=row.ours)


EDGES = np.load(GOLDEN / "edge.npz")


@pytest.mark.parametrize("case", sorted({n.partition("/")[0] for n in EDGES.files}))
def test_edge_cases(model, case):
    inputs = golden_batch(EDGES, f"{case}/")
    assert len(inputs) == (1 if case == "no_mask_no_segment" else 3)
    outputs = model.backbone(inputs)
    for name in ("sequence_output", "pooled_output"):
        assert_close(outputs[name], EDGES[f"{case}/{name}"])


@pytest.mark.slow
def test_xla_equals_eager(model, batch, outputs):
    compiled = tf.function(model, jit_compile=True)(batch)
    for name, value in outputs.items():
        np.testing.assert_allclose(compiled[name], value, rtol=0, atol=2e-5)
