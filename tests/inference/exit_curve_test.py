"""What is measured of exits is what they do."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.converters.keras_model import from_model
from albert_tf.errors import UsageError
from albert_tf.inference import exit_curve
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.exit_curve import check_curve, layers_of, rules_of, write_curve
from albert_tf.inference.predictor import Predictor
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.tasks.text_tables import TextTable
from tests import exits

KINDS = ("regression", "multi_label_classification", "single_label_classification")
LAYERS = 3
TEXTS = ["a b", "the " * 50, "", "I loved it!", "Never again.", "x y z"] * 4


@given(
    kind=st.sampled_from(KINDS),
    num_layers=st.integers(1, 9),
    num_labels=st.integers(2, 4),
    seed=st.integers(0, 99),
)
def test_every_rule_stops_where_it_should(kind, num_layers, num_labels, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(5, num_layers, num_labels)).astype("float32")
    rules = rules_of(num_layers, num_labels, kind)
    assert {rule.kind for rule in rules} <= {"layers", "entropy", "patience"}
    for rule in rules:
        rule.check(num_layers, kind)
        multi_label = kind == "multi_label_classification"
        kind_and_value = rule.kind, rule.value
        expected = [exits.stops_after(*kind_and_value, x, multi_label) for x in logits]
        assert layers_of(rule, logits, kind).tolist() == expected


@pytest.fixture(scope="module")
def model():
    model = exits.make_model(config=exits.CONFIG.replace(num_hidden_layers=LAYERS))
    model.labels = ("no", "maybe", "yes")
    return model


@pytest.fixture(scope="module")
def examples():
    labels = ["no", "maybe", "yes"] * 8
    return TextTable("t", TEXTS, None, labels, list(range(1, 25)))


@pytest.mark.usefixtures("eager")
def test_the_curve(model, tokenizer, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(exit_curve, "SHARES", (0.35,))
    monkeypatch.setattr(exit_curve, "MAX_PATIENCE", 1)
    monkeypatch.setattr(exit_curve.measure_exits, "__defaults__", (1, 9))  # short
    predictor = Predictor(model, tokenizer, batch_size=5)
    path = tmp_path / "exits.json"
    write_curve(str(path), predictor, examples)
    assert (tmp_path / "exits.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(path.read_text())
    assert found["weights"] == from_model(model).digest()
    assert (found["num_layers"], found["examples"]) == (LAYERS, 24)
    metric = found["metric"]
    points = {point["exit"]: point for point in found["points"]}
    whole = points[f"layers:{LAYERS}"]
    assert whole[metric] == pytest.approx(found["full"][metric])
    rule = next(rule for rule in points if "entropy" in rule)
    other = Predictor(model, tokenizer, batch_size=5, exit=rule)
    answers = other.answers(examples)
    expected = other.metrics(examples, answers)[metric]
    assert points[rule][metric] == pytest.approx(expected)
    assert points[rule]["mean_layers"] == pytest.approx(other.used_layers.mean())
    good = [p for p in found["points"] if found["full"][metric] - p[metric] <= 0.005]
    assert found["best"] == min(good, key=lambda point: point["time"])
    assert all(point["time"] > 0 for point in found["points"])


@pytest.mark.slow
def test_a_classifier_that_stops(model, tokenizer):
    whole = Classifier(model, tokenizer)
    assert whole.num_layers(["a", "b"]).tolist() == [LAYERS] * 2
    early = Classifier(model, tokenizer, exit="patience:1", batch_size=2)
    layers = early.num_layers(TEXTS).tolist()
    assert layers == [early.num_layers([text])[0] for text in TEXTS]
    assert len(set(layers)) > 1
    assert np.abs(early.logits(TEXTS) - whole.logits(TEXTS)).max() > 1e-3
    assert early([]) == [] and early.num_layers([]).shape == (0,)


def test_what_cannot_be_measured_is_refused_before_anything_is_computed(
    model, tokenizer, tmp_path
):
    predictor = Predictor(model, tokenizer)
    curve = str(tmp_path / "exits.json")
    check_curve(curve, predictor, ["dev"], overwrite=False)
    with pytest.raises(UsageError, match="measures one split; .* dev_m, dev_mm"):
        check_curve(curve, predictor, ["dev_m", "dev_mm"], overwrite=False)
    (tmp_path / "exits.png").write_text("mine")
    with pytest.raises(UsageError, match="exits.png exists already"):
        check_curve(curve, predictor, ["dev"], overwrite=False)
    check_curve(curve, predictor, ["dev"], overwrite=True)
    plain = AlbertTextClassifier(model.config, num_labels=3)
    with pytest.raises(UsageError, match="exit: the model has no exits"):
        Classifier(plain, tokenizer, exit="layers:1")
    whole = Predictor(plain, tokenizer)
    with pytest.raises(UsageError, match="exit: the model has no exits"):
        check_curve(curve, whole, ["dev"], overwrite=False)
    check_curve("", whole, ["dev"], overwrite=False)
