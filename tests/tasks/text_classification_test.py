"""Classification of texts: metrics, answers, their files and reports."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.registry import TASKS
from albert_tf.tasks.task import (
    MULTI_LABEL,
    REGRESSION,
    EncodedExamples,
    warn_of_collapse,
)
from albert_tf.tasks.text_classification import make_answers, table_task, with_labels
from albert_tf.tasks.text_tables import TextTable

SINGLE = table_task(["a", "b"])
MULTI = table_task(["a,x", "b"], MULTI_LABEL)
SCORES = table_task(problem_type=REGRESSION)


def table(labels):
    texts = [f"text {i}" for i in range(len(labels))]
    return TextTable("t.tsv", texts, None, list(labels), list(range(2, 999)))


def metrics_of(task, logits, rows):
    return task.compare(rows, make_answers(task, np.array(logits)))


def test_metrics_depend_on_the_number_of_labels():
    logits = np.eye(3)[[0, 1, 1, 0]]
    two = metrics_of(table_task(["n", "p"]), logits[:, :2], table("nppp"))
    assert " ".join(two) == "accuracy f1 precision recall matthews majority_accuracy"
    assert two["precision"] == 1.0  # of "p" alone
    assert two["majority_accuracy"] == 0.75
    three = metrics_of(table_task(["n", "p", "x"]), logits, table("nppp"))
    assert three["precision"] == pytest.approx((0.5 + 1.0) / 2)


@pytest.mark.parametrize("order", [("n", "p"), ("p", "n")])
def test_f1_is_about_one_label_in_any_order_of_the_model(order):
    """Correct are n, p, p, p, and n, p, p, n are predicted."""
    task = dataclasses.replace(with_labels(table_task(), table("nppp")), labels=order)
    logits = np.eye(2)[[order.index(name) for name in "nppn"]]
    values = metrics_of(task, logits, table("nppp"))
    assert (values["precision"], values["recall"]) == (1.0, pytest.approx(2 / 3))
    assert values["majority_accuracy"] == 0.75
    # `--labels=p,n` asks for the other one.
    asked = dataclasses.replace(table_task(("p", "n")), labels=order)
    values = metrics_of(asked, logits, table("nppp"))
    assert (values["precision"], values["recall"]) == (0.5, 1.0)


@pytest.mark.parametrize(
    "labels", ["abc", [str(i % 51) for i in range(200)]], ids=["every_row", "many"]
)
def test_suspiciously_many_labels_need_a_confirmation(labels):
    with pytest.raises(UsageError, match="label_column: .* --many_labels"):
        with_labels(table_task(), table(labels))
    task = with_labels(table_task(), table(labels), many_labels=True)
    assert len(task.labels) == len(set(labels))
    assert with_labels(table_task(), table([str(i % 50) for i in range(99)])).labels
    assert with_labels(table_task(), table("baab")).labels == ("a", "b")
    assert with_labels(table_task("ba"), table("aa")).labels == ("b", "a")


def test_rows_are_pairs_with_targets(tokenizer):
    rows = TextTable("t", ["a b", "word " * 99], ["c", "d"], ["y", "x"], [2, 3])
    task = table_task(["x", "y"])
    found = task.with_options(max_seq_length=9).encode(rows, tokenizer)
    assert len(found) == len(found.rows) == 2
    assert found.targets["labels"].tolist() == [1, 0]
    assert found.unit_splits.tolist() == [0, 1, 2]
    assert found.truncated.tolist() == [False, True]
    assert found.rows.lengths[1] == 9
    with pytest.raises(DataError, match="t: line 2: expected one of the labels x, z"):
        table_task(["x", "z"]).encode(rows, tokenizer)
    # Without labels; an empty text and a very long one.
    rows = TextTable("t", ["", "long " * 200_000], None, None, [1, 2])
    found = task.encode(rows, tokenizer)
    assert found.targets == {}
    assert found.rows.lengths.tolist() == [2, 512]
    assert found.truncated.tolist() == [False, True]


TWO = [[0, 1], [1, 0], [1, 0], [0, 1]]
COLA = {"matthews": 3**-0.5, "majority_accuracy": 0.75, "majority_matthews": 0}
STSB = {"pearson": 0.976831, "spearman": 1, "mse": 6.25, "mean_mse": 8.1875}
LISTS = {"f1": 2 / 3, "majority_f1": 2 / 3, "exact_match": 1 / 3}


@pytest.mark.parametrize(
    ("task", "labels", "logits", "expected"),
    [
        (TASKS["mrpc"], "1101", TWO, {"accuracy": 0.75, "f1": 0.8}),
        (TASKS["cola"], "1101", TWO, COLA),
        (TASKS["stsb"], "1268", [[1], [2], [3], [4]], STSB),
        (table_task("abc"), "abca", [[1, 0, 0]] * 4, {"accuracy": 0.5}),
        (SCORES, "12", [[1], [2]], {"pearson": 1}),
        # Each label is answered by its more frequent value.
        (table_task("ab", MULTI_LABEL), [("a",), ("a", "b"), ()], [[1, -1]] * 3, LISTS),
    ],
)
def test_metrics_with_their_baseline(task, labels, logits, expected):
    """Names of metrics, without those of constant answers, need no model."""
    rows = table(labels)
    values = metrics_of(task, logits, rows)
    assert {k: values[k] for k in expected} == pytest.approx(expected, rel=1e-4)
    baselines = ("majority_", "mean_")
    names = [name for name in values if not name.startswith(baselines)]
    assert task.metric_names(rows) == names
    assert task.selecting_metric in names


@pytest.mark.parametrize(
    ("task", "labels", "same", "other"),
    [
        (table_task("np"), "npn", [[1, 0]] * 3, [[1, 0], [0, 1], [1, 0]]),
        (
            table_task("ab", MULTI_LABEL),
            [("a",), (), ("b",)],
            [[-1, -2], [-3, -1], [-1, -1]],
            [[1, -2], [-3, -1], [-1, -1]],
        ),
        (SCORES, "153", [[2.5], [2.5001], [2.5]], [[2.4], [2.6], [2.5]]),
    ],
)
def test_collapse(task, labels, same, other, caplog):
    rows = table(labels)
    answers = make_answers(task, np.array(same))
    warn_of_collapse(task, rows, answers)
    assert task.collapse(rows, answers) in caplog.text != ""
    assert not task.collapse(rows, make_answers(task, np.array(other)))
    # Where all labels are equal, equal answers are right.
    assert not task.collapse(table([labels[0]] * 3), answers)
    assert not task.collapse(dataclasses.replace(rows, labels=None), answers)
    broken = make_answers(task, np.full_like(np.array(same, float), np.nan))
    assert "not finite" in task.collapse(rows, broken)


def test_one_class_is_no_collapse_of_wnli(caplog):
    caplog.set_level("INFO", logger="absl")
    logits = np.array([[1, 0]] * 4)
    wnli, rte = TASKS["wnli"], TASKS["rte"]
    assert not wnli.collapse(table("0110"), make_answers(wnli, logits))
    assert "for wnli this is usual" in caplog.text
    assert rte.collapse(table(rte.labels), make_answers(rte, logits[:2]))


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


def test_answers_with_known_labels():
    rows = dataclasses.replace(table("ba"), ids=["q9", "1"])
    answers = make_answers(SINGLE, np.log([[0.25, 0.75], [0.5, 0.5]]))
    assert SINGLE.cells(rows, answers) == [
        ["index", "label", "prediction", "probability_a", "probability_b"],
        ["q9", "b", "b", "0.250000", "0.750000"],
        ["1", "a", "a", "0.500000", "0.500000"],
    ]
    first = SINGLE.rows(rows, answers)[0]
    assert (first["index"], first["label"]) == ("q9", "b")
    assert list(first["probabilities"].items()) == [("b", 0.75), ("a", 0.25)]


def test_scores_as_answers():
    rows = table(["3.000", "1"])
    answers = make_answers(SCORES, np.array([[2.5], [-0.125]]))
    assert SCORES.cells(rows, answers) == [
        ["index", "label", "prediction"],
        ["0", "3.000", "2.500000"],
        ["1", "1", "-0.125000"],
    ]
    last = {"index": "1", "label": "1", "prediction": -0.125}
    assert SCORES.rows(rows, answers)[1] == last
    # float32's noise is cut, but not a small score.
    answers = make_answers(SCORES, np.array([[3.14159274], [2.5e-7]]))
    assert [row[2] for row in SCORES.cells(rows, answers)[1:]] == [
        "3.141593",
        "2.5e-07",
    ]
    assert [row["prediction"] for row in SCORES.rows(rows, answers)] == [
        3.141593,
        2.5e-7,
    ]


def test_several_labels_as_answers():
    rows = table([("b",), ("a,x", "b")])
    answers = make_answers(MULTI, np.array([[1.0, 2.0], [-1.0, -2.0]]))
    # A comma is in a label, so another separator is taken.
    header, *cells = MULTI.cells(rows, answers)
    assert header[3:] == ["probability_a,x", "probability_b"]
    assert cells[0] == ["0", "b", "a,x;b", "0.731059", "0.880797"]
    assert cells[1][:3] == ["1", "a,x;b", ""]
    first = MULTI.rows(rows, answers)[0]
    assert (first["label"], first["prediction"]) == (("b",), ["a,x", "b"])
    # All separators are in a label.
    answers = make_answers(table_task([",;| ", "b"], MULTI_LABEL), np.ones((1, 2)))
    rows = dataclasses.replace(table([""]), labels=None)
    assert json.loads(MULTI.cells(rows, answers)[1][1]) == [",;| ", "b"]


def report(task, logits, rows, truncated=False):
    answers = make_answers(task, np.array(logits))
    truncated = np.full(len(rows), truncated)
    encoded = EncodedExamples(None, np.arange(len(rows) + 1), {}, truncated)
    found = task.report(rows, answers, encoded)
    json.dumps(found, allow_nan=False)
    return found


def test_the_report_of_one_label():
    logits = [[0, 3], [2, 0], [0, 1], [0, 4]]
    found = report(table_task(["n", "p", "x"][:2]), logits, table("nnnp"), True)
    assert found["labels"] == ["n", "p"]
    assert found["confusion"] == [[1, 2], [0, 1]]
    row = {"label": "n", "precision": 1.0, "recall": pytest.approx(1 / 3), "f1": 0.5}
    assert found["per_class"][0] == row | {"support": 3}
    confidence = pytest.approx(1 / (1 + np.exp(-3)))
    assert found["calibration"][0] == [confidence, False]
    assert [is_right for _, is_right in found["calibration"]] == [0, 1, 0, 1]
    assert [error["index"] for error in found["errors"]] == ["0", "2"]
    row = {"index": "0", "text": "text 0", "label": "n", "prediction": "p"}
    assert found["errors"][0] == row | {"score": confidence, "truncated": True}
    unlabelled = dataclasses.replace(table("n"), labels=None)
    assert report(table_task(["n", "p"]), [[0, 0]], unlabelled) == {}
    # Classes that do not occur.
    found = report(table_task("abc"), [[0, 1, 0]], table("b"))
    assert found["confusion"] == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert [line["support"] for line in found["per_class"]] == [0, 1, 0]
    assert found["errors"] == []


def test_the_report_of_several_labels_and_of_scores():
    rows = table([("a",), (), ("b",)])
    task = table_task("ab", MULTI_LABEL)
    found = report(task, [[1, -1], [2, 3], [1, 1]], rows)
    assert "confusion" not in found
    precisions = [line["precision"] for line in found["per_class"]]
    assert precisions == [pytest.approx(1 / 3), 0.5]
    assert len(found["calibration"]) == 6
    assert [error["index"] for error in found["errors"]] == ["1", "2"]
    assert found["errors"][1]["label"] == ["b"]
    assert found["errors"][1]["prediction"] == ["a", "b"]
    found = report(SCORES, [[1.0], [2.0]], table(["1.5", "9"]))
    assert found["scatter"] == [[1.5, 1.0], [9.0, 2.0]]
    assert [error["score"] for error in found["errors"]] == [7.0, 0.5]
    assert set(found) == {"scatter", "errors"}


def test_at_most_50_errors_with_short_texts():
    count = 60
    pairs = (["x" * 5000] * count, ["y" * 5000] * count)
    rows = TextTable("t", *pairs, ["a"] * count, [0] * count)
    found = report(SINGLE, [[0, i + 1] for i in range(count)], rows)
    assert len(found["errors"]) == 50
    assert found["errors"][0]["index"] == "59"
    text = found["errors"][0]["text"]
    assert len(text) <= 1000 and text[0] == "x" and "y" in text
