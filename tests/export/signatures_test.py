"""What signatures answer, by the problem type, and how they are warmed up."""

import numpy as np
import pytest

from albert_tf.export import warmup
from albert_tf.export.signatures import make_signatures
from albert_tf.models.classifiers import AlbertTextClassifier
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1, max_position_embeddings=9)
TOKENS = {
    "token_ids": np.array([[2, 7, 3], [2, 9, 3]], np.int32),
    "lengths": np.array([3, 3], np.int32),
    "segment_ids": np.zeros((2, 3), np.int32),
}


def answers(num_labels, problem_type):
    """Signatures of a classifier, and what `tokens` answers."""
    model = AlbertTextClassifier(CONFIG, num_labels=num_labels, seed=1)
    model.problem_type = problem_type
    signatures = make_signatures(model, None)
    outputs = signatures["tokens"](**TOKENS)
    return signatures, {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize("problem_type", [None, "regression"])
def test_regression_returns_the_value(problem_type):
    signatures, outputs = answers(1, problem_type)
    assert outputs.keys() == {"scores", "logits"}
    np.testing.assert_array_equal(outputs["scores"], outputs["logits"])
    assert outputs["scores"][0] != outputs["scores"][1]
    assert "classify" not in signatures


def test_multi_label_probabilities_are_independent():
    signatures, outputs = answers(3, "multi_label_classification")
    expected = 1 / (1 + np.exp(-outputs["logits"]))
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=1e-5)
    assert "classify" in signatures


def test_every_length_and_batch():
    model = AlbertTextClassifier(CONFIG, num_labels=2)
    made = warmup.make_requests(model, make_signatures(model, None), 100, (1, 8))
    shapes = {x["token_ids"].shape for name, x in made if name == "tokens"}
    lengths = (16, 32, 64, 100)
    assert shapes == {(size, length) for size in (1, 8) for length in lengths}
    names = {"serving_default", "pair", "tokens", "preprocess", "embed", "embed_layer"}
    assert {name for name, _ in made} == names
    assert len(made) == 2 * 2 * 4 + 4
