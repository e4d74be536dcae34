"""Signatures of a classifier with exits, called without being saved."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs
from albert_tf.models.exits import ElasticClassifier
from albert_tf.models.tensorflow import elastic_forward, fast_forward
from tests import exits

TEXTS = ["I loved it!", "", "a\0b", "The 1990, café's " * 30, "x"]
PAIRS = ["no", "yes " * 9, "", "a", "b"]


@pytest.fixture(scope="module")
def model():
    return exits.make_model()


def make(model, tokenizer, rule=None, fast=True):
    forward = fast_forward.choose(model, "float32") if fast else None
    elastic = elastic_forward.choose(model, forward, rule)
    return make_signatures(model, TextInputs(tokenizer, 24), None, 5, elastic)


@pytest.fixture(scope="module")
def signatures(model, tokenizer):
    return make(model, tokenizer)


def ask(signatures, name, **inputs):
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    outputs = signatures[name].function(*tensors.values())
    return {key: value.numpy() for key, value in outputs.items()}


@given(depths=st.lists(st.integers(1, exits.LAYERS), max_size=5))
@settings(max_examples=6)
def test_each_text_has_its_own_depth(signatures, model, tokenizer, depths):
    texts = np.array(TEXTS[: len(depths)], object)
    layers = np.array(depths, np.int32)
    found = ask(signatures, "elastic", text=texts, num_layers=layers)
    assert found.keys() == {"probabilities", "logits", "label", "num_layers"}
    assert found["num_layers"].tolist() == depths
    every = exits.every_logit(model, TextInputs(tokenizer, 24)(tf.constant(texts)))
    expected = every[np.arange(len(depths)), layers - 1]
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-5)


def test_depths_of_pairs(signatures, model, tokenizer):
    layers = np.array([1, 4, 3, 2, 4], np.int32)
    given = {"text": TEXTS, "text_pair": PAIRS}
    found = ask(signatures, "elastic_pair", **given, num_layers=layers)
    every = exits.every_logit(model, TextInputs(tokenizer, 24)(TEXTS, PAIRS))
    expected = every[np.arange(5), layers - 1]
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [[0, 1], [1, 5], [99, 1], [-1, 1]])
def test_depths_out_of_range(signatures, layers):
    message = "num_layers: from 1 to 4, received"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(signatures, "elastic", text=["a", "b"], num_layers=np.int32(layers))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("rule", ["entropy:0.4", "patience:1", "layers:2"])
def test_rules(model, tokenizer, rule, fast):
    """Both forwards follow the rule; without one, the whole model answers."""
    found = ask(make(model, tokenizer, rule, fast), "serving_default", text=TEXTS)
    inputs = TextInputs(tokenizer, 24)(tf.constant(TEXTS))
    expected = ElasticClassifier(model, rule)(inputs)
    np.testing.assert_array_equal(found["num_layers"], expected["num_layers"])
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=1e-5)


def test_without_a_rule(signatures, model, tokenizer):
    found = ask(signatures, "serving_default", text=TEXTS)
    assert "num_layers" not in found
    expected = model(TextInputs(tokenizer, 24)(tf.constant(TEXTS)))
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)
