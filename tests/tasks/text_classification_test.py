"""Classification of a table: labels, evaluation, predictions."""

import csv
import io
import json

import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.tasks.tables import TextTable
from albert_tf.tasks.text_classification import (
    evaluate,
    predictions_table,
    predictions_text,
    table_task,
    with_labels,
)


def table(labels):
    lines = list(range(2, len(labels) + 2))
    return TextTable("t.tsv", ["text"] * len(labels), None, list(labels), lines)


def test_metrics_depend_on_the_number_of_labels():
    logits = np.eye(3)[[0, 1, 1, 0]]
    two = evaluate(table_task(["n", "p"]), logits[:, :2], table("nppp"))
    assert list(two) == [
        "accuracy",
        "f1",
        "precision",
        "recall",
        "matthews",
        "majority_accuracy",
    ]
    assert two["precision"] == 1.0  # of "p" alone
    assert two["majority_accuracy"] == 0.75
    three = evaluate(table_task(["n", "p", "x"]), logits, table("nppp"))
    assert three["precision"] == pytest.approx((0.5 + 1.0) / 2)


def test_labels_come_from_the_table_unless_given():
    assert with_labels(table_task(), table("baab")).labels == ("a", "b")
    given = table_task(["b", "a"])
    assert with_labels(given, table("aa")) is given
    # The labels decide the metrics, too.
    found = with_labels(table_task(), table("nppp"))
    assert evaluate(found, np.eye(2)[[0, 1, 1, 0]], table("nppp"))["precision"] == 1.0


@pytest.mark.parametrize(
    "labels", ["abc", [str(i % 51) for i in range(200)]], ids=["every_row", "many"]
)
def test_suspiciously_many_labels_need_a_confirmation(labels):
    with pytest.raises(UsageError, match="label_column: .* --many_labels"):
        with_labels(table_task(), table(labels))
    task = with_labels(table_task(), table(labels), many_labels=True)
    assert len(task.labels) == len(set(labels))
    assert with_labels(table_task(), table([str(i % 50) for i in range(99)])).labels
    assert with_labels(table_task(), table("ab")).labels == ("a", "b")


def test_collapse_is_reported(caplog):
    task, answers = table_task(["bad", "good"]), table(["bad", "good", "bad"])
    logits = np.zeros((3, 2))
    with caplog.at_level("WARNING"):
        values = evaluate(task, logits, answers)
    assert "predicts 'bad' for every text" in caplog.text
    assert values["matthews"] == 0
    caplog.clear()
    logits[0, 1] = 1
    evaluate(task, logits, answers)
    assert not caplog.text


LOGITS = np.log([[0.25, 0.75], [0.5, 0.5]])


def test_predictions_with_known_labels():
    text = predictions_table(LOGITS, ["a", "b"], ["b", "a"])
    assert text == (
        "index\tlabel\tprediction\tprobability_a\tprobability_b\n"
        "0\tb\tb\t0.250000\t0.750000\n"
        "1\ta\ta\t0.500000\t0.500000\n"
    )


def test_the_ending_selects_the_format():
    labels = ["a,x", "b"]
    tabs = predictions_text("p.tsv", LOGITS, labels)
    assert (
        tabs
        == predictions_table(LOGITS, labels)
        == predictions_text("p", LOGITS, labels)
    )
    rows = list(csv.DictReader(io.StringIO(predictions_text("p.csv", LOGITS, labels))))
    assert rows[1]["prediction"] == "a,x"
    assert rows[0]["probability_b"] == "0.750000"
    lines = predictions_text("p.jsonl", LOGITS, labels).splitlines()
    assert json.loads(lines[0]) == {
        "index": 0,
        "prediction": "b",
        "probabilities": {"b": 0.75, "a,x": 0.25},
    }
    assert list(json.loads(lines[0])["probabilities"]) == ["b", "a,x"]
