"""An exported model that stops early answers as in Python, and refuses bad depths."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.export import warmup
from albert_tf.export.export_settings import ExportSettings
from albert_tf.export.saved_model import export_saved_model, find_exits, read_exits
from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs
from albert_tf.inference.classifier import Classifier
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.tensorflow import fast_forward
from tests import exits
from tests.export import heads

TEXTS = ["I loved it!", "", "a\0b", "The 1990, café's " * 30, "x", "y z"]
BYTES = np.array([text.encode() for text in TEXTS], object)
PAIRS = ["no", "yes " * 9, "", "a", "b", "c"]


@pytest.fixture(scope="module")
def model():
    return exits.make_model()


def curve(path, weights):
    path.write_text(json.dumps({"weights": weights, "points": []}))
    path.with_suffix(".png").write_bytes(b"picture")
    return str(path)


def test_measurements_of_other_weights(model, tmp_path, caplog):
    assert find_exits(str(tmp_path)) is None
    assert find_exits("hf://owner/name") is None
    assert read_exits(curve(tmp_path / "exits.json", "0"), model) == (None, None)
    assert "is about other weights" in caplog.text
    with pytest.raises(UsageError, match="is about other weights than the model's"):
        read_exits(curve(tmp_path / "given.json", "0"), model)
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(DataError, match="not written by evaluate"):
        read_exits(tmp_path / "no.json", model)


def test_refused(model, tokenizer, tmp_path):
    plain = AlbertTextClassifier(exits.CONFIG, num_labels=3)
    for one, rule, message in (
        (plain, "layers:1", "exit: the model has no exits"),
        (model, "layers:6", "layers must be from 1 to 4"),
        (heads.make_model(None), "layers:1", "only text classifiers have exits"),
    ):
        with pytest.raises(UsageError, match=message):
            export_saved_model(one, tmp_path / "m", tokenizer=tokenizer, exit=rule)
    assert not (tmp_path / "m").exists()
    given = {"model": "m", "output_dir": "o"}
    with pytest.raises(UsageError, match="exit: expected entropy:H"):
        ExportSettings(**given, exit="x")
    with pytest.raises(UsageError, match="exit: only with --format=saved_model"):
        ExportSettings(**given, exit="layers:1", format="litert")
    with pytest.raises(UsageError, match="server_files: needs --version"):
        ExportSettings(**given, server_files=True)


def make(model, tokenizer, rule=None, fast=True):
    forward = fast_forward.choose(model, "float32") if fast else None
    elastic = fast_forward.choose_elastic(model, forward, rule)
    return make_signatures(model, TextInputs(tokenizer, 24), None, 5, elastic)


@pytest.fixture(scope="module")
def unsaved(model, tokenizer):
    return make(model, tokenizer)


def call(signatures, name, **inputs):
    tensors = [tf.constant(value) for value in inputs.values()]
    return {k: v.numpy() for k, v in signatures[name](*tensors).items()}


@given(depths=st.lists(st.integers(1, exits.LAYERS), max_size=5))
@settings(max_examples=6)
def test_each_text_has_its_own_depth(unsaved, model, tokenizer, depths):
    texts = np.array(TEXTS[: len(depths)], object)
    pairs = np.array(PAIRS[: len(depths)], object)
    layers = np.array(depths, np.int32)
    for name, strings in (
        ("elastic", {"text": texts}),
        ("elastic_pair", {"text": texts, "text_pair": pairs}),
    ):
        found = call(unsaved, name, **strings, num_layers=layers)
        assert found.keys() == {"probabilities", "logits", "label", "num_layers"}
        assert found["num_layers"].tolist() == depths
        inputs = TextInputs(tokenizer, 24)(*map(tf.constant, strings.values()))
        every = exits.every_logit(model, inputs)
        expected = every[np.arange(len(depths)), layers - 1]
        np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-5)


def test_depths_out_of_range(unsaved):
    message = "num_layers: from 1 to 4, received"
    for layers in ([0, 1], [1, 5], [99, 1], [-1, 1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call(unsaved, "elastic", text=["a", "b"], num_layers=np.int32(layers))


def test_the_warm_up_requests_are_answered(unsaved, model):
    requests = dict(warmup.make_requests(model, unsaved, 24, [2]))
    for name in ("elastic", "elastic_pair"):
        found = call(unsaved, name, **requests[name])
        assert found["num_layers"].tolist() == requests[name]["num_layers"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "fast"),
    [
        ("entropy:0.4", True),
        pytest.param("patience:1", True, marks=pytest.mark.broad),
        ("patience:1", False),
        ("layers:2", True),
        (None, True),
    ],
)
def test_rules(model, tokenizer, rule, fast):
    """Both forwards follow the rule; without one, the whole model answers."""
    signatures = make(model, tokenizer, rule, fast)
    classify = Classifier(model, tokenizer, exit=rule)
    found = call(signatures, "serving_default", text=TEXTS)
    names = {"probabilities", "logits", "label"}
    assert found.keys() == names | ({"num_layers"} if rule else set())
    np.testing.assert_allclose(found["logits"], classify.logits(TEXTS), atol=1e-5)
    if rule:
        layers = classify.num_layers(TEXTS)
        np.testing.assert_array_equal(found["num_layers"], layers)
        assert len(set(layers.tolist())) > 1 or rule == "layers:2"
    pair = call(signatures, "pair", text=TEXTS, text_pair=PAIRS)
    expected = classify.logits(TEXTS, PAIRS)
    np.testing.assert_allclose(pair["logits"], expected, atol=1e-5)
    examples = [heads.example(text) for text in TEXTS[:2]]
    found = call(signatures, "classify", inputs=examples)
    # TensorFlow Serving's Classify API refuses a third output.
    assert found.keys() == {"classes", "scores"}
    scores = classify.scores(TEXTS[:2])
    np.testing.assert_allclose(found["scores"], scores, atol=1e-5)
