"""Answers and their files."""

import json

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION
from albert_tf.tasks.texts.text_classification import table_task
from albert_tf.tasks.texts.text_predictions import json_lines, make_answers, table_text

SINGLE = table_task(["a", "b"])
MULTI = table_task(["a,x", "b"], problem_type=MULTI_LABEL)
SCORES = table_task(problem_type=REGRESSION)


def test_decisions():
    single = make_answers(SINGLE, np.array([[0.0, 0.0], [1.0, 3.0]]))
    assert single.decisions.tolist() == [0, 1]  # the first of equals
    np.testing.assert_allclose(single.scores.sum(-1), 1, rtol=1e-6)
    several = make_answers(MULTI, np.array([[0.0, 1e-6], [-800.0, 800.0]]))
    assert several.decisions.tolist() == [[False, True], [False, True]]
    np.testing.assert_allclose(several.scores, [[0.5, 0.5], [0, 1]], atol=1e-6)
    scores = make_answers(SCORES, np.array([[2.5], [-1]]))
    assert scores.decisions.tolist() == scores.scores.tolist() == [2.5, -1]
    assert [scores.text(0), several.text(1), single.text(1)] == [2.5, ["b"], "b"]


@pytest.mark.parametrize(
    ("task", "width"), [(SINGLE, 3), (SINGLE, 1), (MULTI, 1), (SCORES, 2)]
)
def test_models_of_another_width_are_refused(task, width):
    with pytest.raises(DataError, match=r"expected a model with .*shape \(4, "):
        make_answers(task, np.zeros((4, width)))


def test_scores_in_files():
    answers = make_answers(SCORES, np.array([[2.5], [-0.125]]))
    assert table_text(answers, ["x", "y"], ["3.000", "1"]) == (
        "index\tlabel\tprediction\nx\t3.000\t2.500000\ny\t1\t-0.125000\n"
    )
    assert [
        json.loads(line) for line in json_lines(answers, ["0", "1"]).splitlines()
    ] == [
        {"index": 0, "prediction": 2.5},
        {"index": 1, "prediction": -0.125},
    ]


def test_several_labels_in_files():
    answers = make_answers(MULTI, np.array([[1.0, 2.0], [-1.0, -2.0]]))
    known = [("b",), ("a,x", "b")]
    rows = table_text(answers, ["0", "1"], known).splitlines()
    # A comma is in a label, so another separator is taken.
    assert rows[0] == "index\tlabel\tprediction\tprobability_a,x\tprobability_b"
    assert rows[1].startswith("0\tb\ta,x;b\t0.731059\t0.880797")
    assert rows[2].startswith("1\ta,x;b\t\t")
    first = json.loads(json_lines(answers, ["q7", "q8"], known).splitlines()[0])
    assert first == {
        "index": "q7",
        "label": ["b"],
        "prediction": ["a,x", "b"],
        "probabilities": {"b": 0.880797, "a,x": 0.731059},
    }


def test_separators_that_are_all_taken():
    task = table_task([",;| ", "b"], problem_type=MULTI_LABEL)
    answers = make_answers(task, np.ones((1, 2)))
    row = table_text(answers, ["0"]).splitlines()[1]
    assert json.loads(row.split("\t")[1].strip('"').replace('""', '"')) == [",;| ", "b"]
