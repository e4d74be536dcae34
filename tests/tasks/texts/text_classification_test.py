"""Classification of a table: labels, evaluation, predictions."""

import csv
import dataclasses
import io
import json
import pathlib
import types

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.prediction_files import prediction_contents
from albert_tf.tasks.registry import TASKS
from albert_tf.tasks.task import (
    MULTI_LABEL,
    REGRESSION,
    EncodedExamples,
    Options,
    warn_of_collapse,
)
from albert_tf.tasks.texts.tables import TextTable
from albert_tf.tasks.texts.text_classification import (
    FAMILY,
    table_task,
    with_labels,
)
from albert_tf.tasks.texts.text_predictions import make_answers, table_text
from albert_tf.text.load import load_tokenizer

SPM = pathlib.Path(__file__).parents[2] / "golden/tokenization/spiece.model"


def encoded(rows, truncated=None):
    """Stands for `rows` as tokens, which answers and reports do not look at."""
    count = len(rows)
    truncated = np.array(truncated or [False] * count)
    return EncodedExamples(None, np.arange(count + 1), {}, truncated)


def table(labels):
    lines = list(range(2, len(labels) + 2))
    return TextTable("t.tsv", ["text"] * len(labels), None, list(labels), lines)


def evaluate(task, logits, rows):
    """What `albert-tf evaluate` does with the outputs of a model."""
    answers = make_answers(task, logits)
    warn_of_collapse(task, rows, answers)
    return FAMILY.metrics(task, rows, answers)


def predictions_table(logits, labels, known=None):
    answers = make_answers(table_task(labels), logits)
    return table_text(answers, [str(i) for i in range(len(answers))], known)


def predictions_text(path, logits, labels):
    """What `albert-tf predict` writes."""
    task, rows = table_task(labels), table(labels)
    rows = dataclasses.replace(rows, labels=None)
    predictor = types.SimpleNamespace(task=task, options=task.options)
    answers = make_answers(task, logits)
    return prediction_contents(path, predictor, rows, answers)[path]


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


@pytest.mark.parametrize("order", [("n", "p"), ("p", "n")])
def test_f1_is_about_one_label_in_any_order_of_the_model(order):
    """Correct are n, p, p, p, and n, p, p, n are predicted."""
    task = dataclasses.replace(with_labels(table_task(), table("nppp")), labels=order)
    logits = np.eye(2)[[order.index(name) for name in "nppn"]]
    values = evaluate(task, logits, table("nppp"))
    assert (values["precision"], values["recall"]) == (1.0, pytest.approx(2 / 3))
    assert values["majority_accuracy"] == 0.75
    # `--labels=p,n` asks for the other one.
    asked = dataclasses.replace(table_task(("p", "n")), labels=order)
    values = evaluate(asked, logits, table("nppp"))
    assert (values["precision"], values["recall"]) == (0.5, 1.0)


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


def answers_of(task, logits, rows):
    outputs = {"logits": np.array(logits, np.float32)}
    return FAMILY.answers(task, rows, encoded(rows), outputs, Options())


def test_rows_are_pairs_with_targets():
    tokenizer = load_tokenizer(SPM)
    rows = TextTable("t", ["a b", "word " * 99], ["c", "d"], ["y", "x"], [2, 3])
    task = table_task(["x", "y"])
    found = FAMILY.encode(task, rows, tokenizer, Options(max_seq_length=9))
    assert len(found) == len(found.rows) == 2
    assert found.targets["labels"].tolist() == [1, 0]
    assert found.unit_splits.tolist() == [0, 1, 2]
    assert found.truncated.tolist() == [False, True]
    assert found.rows.lengths[1] == 9
    unlabelled = dataclasses.replace(rows, labels=None)
    assert FAMILY.encode(task, unlabelled, tokenizer, Options()).targets == {}
    with pytest.raises(DataError, match="t: line 2: expected one of the labels x, z"):
        FAMILY.encode(table_task(["x", "z"]), rows, tokenizer, Options())


def test_empty_and_very_long_texts():
    rows = TextTable("t", ["", "long " * 200_000], None, None, [1, 2])
    found = FAMILY.encode(table_task("ab"), rows, load_tokenizer(SPM), Options())
    assert found.rows.lengths.tolist() == [2, 512]
    assert found.truncated.tolist() == [False, True]


def test_metrics_of_glue_with_their_baseline():
    rows = table("1101")
    logits = [[0, 1], [1, 0], [1, 0], [0, 1]]
    task = TASKS["mrpc"]
    assert FAMILY.metrics(task, rows, answers_of(task, logits, rows)) == {
        "accuracy": 0.75,
        "f1": pytest.approx(0.8),
        "majority_accuracy": 0.75,
    }
    task = TASKS["cola"]
    values = FAMILY.metrics(task, rows, answers_of(task, logits, rows))
    assert values["majority_matthews"] == 0
    assert list(values) == ["matthews", "majority_accuracy", "majority_matthews"]


@pytest.mark.parametrize(
    ("task", "labels", "logits"),
    [
        (TASKS["mrpc"], "1101", [[0, 1]] * 4),
        (TASKS["cola"], "1101", [[0, 1]] * 4),
        (TASKS["stsb"], ["1.0", "2.0"], [[1], [2]]),
        (table_task("abc"), "abca", [[1, 0, 0]] * 4),
        (table_task(problem_type=REGRESSION), ["1.0", "2.0"], [[1], [2]]),
        (table_task("ab", problem_type=MULTI_LABEL), [("a",), ()], [[1, -1]] * 2),
    ],
)
def test_names_of_metrics_are_known_without_a_model(task, labels, logits):
    rows = table(labels)
    values = FAMILY.metrics(task, rows, answers_of(task, logits, rows))
    baselines = ("majority_", "mean_")
    expected = [name for name in values if not name.startswith(baselines)]
    assert FAMILY.metric_names(task, rows) == expected
    assert task.selecting_metric in expected


def test_scores_are_compared_with_the_mean():
    task, rows = TASKS["stsb"], table(["1.0", "2.0", "6.0"])
    values = FAMILY.metrics(task, rows, answers_of(task, [[1], [2], [3]], rows))
    assert list(values) == ["pearson", "spearman", "mse", "mean_mse"]
    assert values["spearman"] == pytest.approx(1)
    assert values["mse"] == pytest.approx(3)
    assert values["mean_mse"] == pytest.approx(14 / 3)


def test_several_labels_are_compared_with_the_more_frequent_value():
    task = table_task(["a", "b"], problem_type=MULTI_LABEL)
    rows = table([("a",), ("a", "b"), ()])
    values = FAMILY.metrics(task, rows, answers_of(task, [[1, -1]] * 3, rows))
    assert values["f1"] == values["majority_f1"] == pytest.approx(2 / 3)
    assert values["exact_match"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("task", "labels", "same", "other"),
    [
        (table_task("np"), "npn", [[1, 0]] * 3, [[1, 0], [0, 1], [1, 0]]),
        (
            table_task("ab", problem_type=MULTI_LABEL),
            [("a",), (), ("b",)],
            [[-1, -2], [-3, -1], [-1, -1]],
            [[1, -2], [-3, -1], [-1, -1]],
        ),
        (
            table_task(problem_type=REGRESSION),
            ["1", "5", "3"],
            [[2.5], [2.5001], [2.5]],
            [[2.4], [2.6], [2.5]],
        ),
    ],
)
def test_collapse(task, labels, same, other):
    rows = table(labels)
    assert FAMILY.collapse(task, rows, answers_of(task, same, rows))
    assert not FAMILY.collapse(task, rows, answers_of(task, other, rows))
    # Where all labels are equal, equal answers are right.
    alike = table([labels[0]] * 3)
    assert not FAMILY.collapse(task, alike, answers_of(task, same, alike))
    broken = np.full_like(np.array(same, float), np.nan)
    assert "not finite" in FAMILY.collapse(task, rows, answers_of(task, broken, rows))
    unlabelled = dataclasses.replace(rows, labels=None)
    assert not FAMILY.collapse(task, unlabelled, answers_of(task, same, unlabelled))


def test_one_class_is_no_collapse_of_wnli(caplog):
    caplog.set_level("INFO", logger="absl")
    rows, logits = table("0110"), [[1, 0]] * 4
    wnli = TASKS["wnli"]
    assert not FAMILY.collapse(wnli, rows, answers_of(wnli, logits, rows))
    assert "for wnli this is usual" in caplog.text
    assert FAMILY.collapse(
        TASKS["rte"],
        table(["entailment", "not_entailment"]),
        answers_of(TASKS["rte"], logits[:2], rows.select([0, 1])),
    )


def test_prediction_files_have_ids():
    task, rows = table_task(["n", "p"]), table("np").select([1])
    rows = dataclasses.replace(rows, ids=["q9"])
    answers = answers_of(task, [[0, 0]], rows)
    found = FAMILY.prediction_files(task, rows, answers, Options())
    assert found[".tsv"].splitlines()[1].split("\t")[:3] == ["q9", "p", "n"]
    assert json.loads(found[".jsonl"])["index"] == "q9"
    assert json.loads(found[".jsonl"])["label"] == "p"
