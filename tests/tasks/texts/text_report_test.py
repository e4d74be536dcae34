"""What the report of classified texts shows."""

import json

import numpy as np
import pytest

from albert_tf.tasks.task import MULTI_LABEL, REGRESSION
from albert_tf.tasks.texts.text_classification import FAMILY, table_task
from albert_tf.tasks.texts.text_predictions import make_answers
from albert_tf.tasks.texts.text_report import make_report
from albert_tf.tasks.texts.text_table import TextTable
from tests.tasks.texts.text_classification_test import encoded


def table(labels, texts=None, pairs=None):
    count = len(labels)
    texts = texts or [f"text {i}" for i in range(count)]
    return TextTable(
        "t", texts, pairs, labels, list(range(count)), list("ABCDEF")[:count]
    )


def report(task, logits, rows, truncated=None):
    answers = make_answers(task, np.array(logits))
    found = FAMILY.report(task, rows, answers, encoded(rows, truncated))
    json.dumps(found, allow_nan=False)
    return found


def test_one_label():
    task = table_task(["n", "p"])
    logits = [[0, 3], [2, 0], [0, 1], [0, 4]]
    found = report(task, logits, table(list("nnnp")), [True, False, False, False])
    assert found["labels"] == ["n", "p"]
    assert found["confusion"] == [[1, 2], [0, 1]]
    assert found["per_class"][0] == {
        "label": "n",
        "precision": 1.0,
        "recall": pytest.approx(1 / 3),
        "f1": 0.5,
        "support": 3,
    }
    assert [is_right for _, is_right in found["calibration"]] == [
        False,
        True,
        False,
        True,
    ]
    assert found["calibration"][0][0] == pytest.approx(1 / (1 + np.exp(-3)))
    assert [error["index"] for error in found["errors"]] == ["A", "C"]
    assert found["errors"][0] == {
        "index": "A",
        "text": "text 0",
        "label": "n",
        "prediction": "p",
        "score": pytest.approx(1 / (1 + np.exp(-3))),
        "truncated": True,
    }


def test_classes_that_do_not_occur():
    found = report(table_task(list("abc")), [[0, 1, 0]], table(["b"]))
    assert found["confusion"] == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert [line["support"] for line in found["per_class"]] == [0, 1, 0]
    assert found["errors"] == []


def test_several_labels():
    task = table_task(["a", "b"], problem_type=MULTI_LABEL)
    rows = table([("a",), (), ("b",)])
    found = report(task, [[1, -1], [2, 3], [1, 1]], rows)
    assert "confusion" not in found
    assert [line["precision"] for line in found["per_class"]] == [
        pytest.approx(1 / 3),
        0.5,
    ]
    assert len(found["calibration"]) == 6
    assert [error["index"] for error in found["errors"]] == ["B", "C"]
    assert found["errors"][1]["label"] == ["b"]
    assert found["errors"][1]["prediction"] == ["a", "b"]


def test_scores():
    task = table_task(problem_type=REGRESSION)
    found = report(task, [[1.0], [2.0]], table(["1.5", "9"]))
    assert found["scatter"] == [[1.5, 1.0], [9.0, 2.0]]
    assert [error["score"] for error in found["errors"]] == [7.0, 0.5]
    assert set(found) == {"scatter", "errors"}


def test_at_most_50_errors_with_short_texts():
    count = 60
    rows = TextTable(
        "t", ["x" * 5000] * count, ["y" * 5000] * count, ["n"] * count, [0] * count
    )
    task = table_task(["n", "p"])
    answers = make_answers(task, np.array([[0, i] for i in range(count)]))
    truncated = np.zeros(count, bool)
    found = make_report(answers, np.zeros(count, np.int32), rows, truncated)
    assert len(found["errors"]) == 50
    assert found["errors"][0]["index"] == "59"
    text = found["errors"][0]["text"]
    assert len(text) <= 1000 and text[0] == "x" and "y" in text


def test_without_labels_there_is_nothing_to_report():
    rows = TextTable("t", ["x"], None, None, [1])
    answers = make_answers(table_task(["n", "p"]), np.zeros((1, 2)))
    assert FAMILY.report(table_task(["n", "p"]), rows, answers, encoded(rows)) == {}
