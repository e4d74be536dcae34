"""Metrics of entities: lenient, strict, of distinct entities, by type."""

import sys

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import tagging_metrics

pytest.importorskip("seqeval")


def rows(*texts):
    return [text.split() for text in texts]


def test_lenient_and_strict_differ():
    """conlleval reads an entity that starts with I-, strict IOB2 does not."""
    labels = rows("B-A I-A O", "B-B O")
    values = tagging_metrics.entity_metrics(labels, rows("I-A I-A O", "B-B O"))
    strict = {"precision_strict": 1.0, "recall_strict": 0.5, "accuracy": 0.8}
    strict["f1_strict"] = pytest.approx(2 / 3)
    assert values == {"f1": 1.0, "precision": 1.0, "recall": 1.0, **strict}


def test_sentences_stay_apart():
    """Flattened, the two entities of the prediction would be one."""
    labels = rows("O B-A", "B-A O")
    values = tagging_metrics.entity_metrics(labels, rows("O B-A", "I-A O"))
    assert values["f1"] == 1.0


def test_counts():
    labels = rows("B-A O B-B I-B", "B-A O O O")
    predictions = rows("B-A O B-B O", "B-B O B-A O")
    values = tagging_metrics.entity_metrics(labels, predictions)
    assert values["precision"] == 0.25
    assert values["recall"] == pytest.approx(1 / 3)
    assert values["f1"] == pytest.approx(2 / 7)
    assert tagging_metrics.per_type(labels, predictions) == [
        {"label": "A", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2},
        {"label": "B", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
    ]


@pytest.mark.parametrize("labels", ["O O", "B-A O"])
def test_no_entity_is_no_warning(labels):
    values = tagging_metrics.entity_metrics(rows(labels), rows("O O"))
    assert values["f1"] == values["f1_strict"] == 0.0
    assert tagging_metrics.per_type(rows("O O"), rows("O O")) == []


def test_distinct_entities():
    tokens = rows("Rome Rome Oslo Lee", "Rome New York .")
    labels = rows("B-L B-L B-L B-P", "B-L B-L I-L O")
    predictions = rows("B-L O O B-L", "O B-L I-L O")
    # Known: Rome, Oslo, New York and Lee (P). Predicted: Rome, New York and Lee (L).
    value = tagging_metrics.surface_f1(tokens, labels, predictions)
    assert value == pytest.approx(2 * 2 / (4 + 3))
    assert tagging_metrics.surface_f1(tokens, rows("O O O O") * 2, predictions) == 0
    assert tagging_metrics.surface_f1([["a"]], [["O"]], [["O"]]) == 0


def test_word_metrics():
    values = tagging_metrics.word_metrics(rows("N V", "N"), rows("N N", "N"))
    assert values["accuracy"] == pytest.approx(2 / 3)
    assert values["f1"] == pytest.approx(0.8 / 2)


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([], []), ([[]], [[]]), (rows("O O"), rows("O")), (rows("O"), rows("O", "O"))],
)
def test_other_lengths(labels, predictions):
    for metrics in (tagging_metrics.entity_metrics, tagging_metrics.word_metrics):
        with pytest.raises(DataError, match="as many tags"):
            metrics(labels, predictions)


def test_without_seqeval(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(UsageError, match="pip install seqeval==1.2.2"):
        tagging_metrics.entity_metrics([["O"]], [["O"]])
