"""Labels: what they are, as numbers, and how those of models and data fit together."""

import dataclasses

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.glue import LABEL_ALIASES
from albert_tf.tasks.labels import (
    choose_head,
    choose_problem_type,
    is_generic,
    make_targets,
    match_labels,
    usable,
)
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from albert_tf.tasks.text_classification import table_task, with_labels
from albert_tf.tasks.text_tables import TextTable

SINGLE = table_task(["a", "b"])
MULTI = table_task(["a", "b", "c"], MULTI_LABEL)
SCORES = table_task(problem_type=REGRESSION)


def table(labels):
    return TextTable(
        "t.tsv", ["x"] * len(labels), None, list(labels), list(range(2, 99))
    )


def test_three_kinds_of_targets():
    one = make_targets(SINGLE, table(["b", "a"]))
    assert one.tolist() == [1, 0] and one.dtype == np.int32
    several = make_targets(MULTI, table([("c", "a"), (), ("b", "b")]))
    assert several.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    scores = make_targets(SCORES, table(["3.5", "-1e2", " 4 "]))
    assert scores.tolist() == [3.5, -100, 4]
    assert several.dtype == scores.dtype == np.float32


BAD = [
    (SINGLE, "c", "expected one of the labels a, b, received 'c'"),
    (SINGLE, "", "the label is empty"),
    (SINGLE, ("a",), "expected one label, received the list"),
    (MULTI, ("a", "x"), "expected one of the labels a, b, c, received 'x'"),
    (MULTI, "a", "expected a list of labels, received 'a'"),
    (SCORES, "nan", "expected a finite number as score, received 'nan'"),
    (SCORES, "-inf", "expected a finite number"),
    (SCORES, "1e39", "expected a finite number"),
    (SCORES, "good", "expected a number as score, received 'good'"),
    (SCORES, "1_0", "expected a number as score"),
    (SCORES, "", "expected a number as score, received ''"),
    (SCORES, ("1",), "expected a number as score"),
]


@pytest.mark.parametrize(("task", "label", "message"), BAD)
def test_bad_labels_are_named_or_left_out(task, label, message, caplog):
    good = {SINGLE_LABEL: "a", MULTI_LABEL: ("a",), REGRESSION: "1"}[task.problem_type]
    rows = table([good, label, good])
    with pytest.raises(DataError, match=f"t.tsv: line 3: {message}"):
        make_targets(task, rows)
    with pytest.raises(DataError, match="line 3: .*--on_bad_input=skip"):
        usable(task, rows)
    left = usable(task, rows, "skip")
    assert (left.lines, left.ids) == ([2, 4], ["0", "2"])
    assert left.skipped == {"rows without a good label": 1}
    assert "rows without a good label 1" in caplog.text
    with pytest.raises(DataError, match="no row has a good label"):
        usable(task, table([label]), "skip")


def test_good_tables_are_not_copied():
    rows = table("ab")
    assert usable(SINGLE, rows, "skip") is rows
    unlabelled = dataclasses.replace(rows, labels=None)
    assert usable(SINGLE, unlabelled) is unlabelled


def test_labels_decide_what_they_are_and_it_is_said(caplog):
    caplog.set_level("INFO", logger="absl")
    assert choose_problem_type(table(["pos", "neg"])) == SINGLE_LABEL
    assert not caplog.text
    assert choose_problem_type(table(["1", "5"])) == SINGLE_LABEL
    assert "read as classes; --problem_type=regression" in caplog.text
    assert choose_problem_type(table(["1", "4.5"])) == REGRESSION
    assert "read as scores; --problem_type=single_label_classification" in caplog.text
    assert choose_problem_type(table([("a",), ()])) == MULTI_LABEL
    assert choose_problem_type(table(["1", "2"]), REGRESSION) == REGRESSION
    assert choose_problem_type(table(["1.5", "2"]), SINGLE_LABEL) == SINGLE_LABEL


def test_labels_of_two_kinds_are_not_guessed():
    with pytest.raises(DataError, match="line 3: the label is 'n/a', but 2 rows"):
        choose_problem_type(table(["1.5", "n/a", "2.0"]))
    with pytest.raises(DataError, match="does not fit the labels, which are lists"):
        choose_problem_type(table([("a",)]), SINGLE_LABEL)
    with pytest.raises(DataError, match="--label_separator"):
        choose_problem_type(table(["a;b"]), MULTI_LABEL)


def test_the_training_table_defines_the_task():
    scores = with_labels(table_task(), table(["1.5", "2.0"]))
    assert (scores.labels, scores.selecting_metric) == ((), "pearson")
    several = with_labels(table_task(), table([("b", "a"), (), ("c",)]))
    assert (several.labels, several.selecting_metric) == (("a", "b", "c"), "f1")
    numbers = with_labels(table_task(), table(["1", "2"]), problem_type=REGRESSION)
    assert numbers.problem_type == REGRESSION
    given = with_labels(table_task(["c", "b", "a"]), table([("b", "a"), ()]))
    assert (given.labels, given.problem_type) == (("c", "b", "a"), MULTI_LABEL)
    with pytest.raises(UsageError, match="labels: scores have none"):
        with_labels(SINGLE, table(["1"]), problem_type=REGRESSION)


def test_empty_labels_and_one_class():
    rows = table(["a", "", "b"])
    with pytest.raises(DataError, match="line 3: the label is empty"):
        with_labels(table_task(), rows)
    assert with_labels(table_task(), rows, on_bad_input="skip").labels == ("a", "b")
    for labels in (["a", "a"], [("a",), ()], [(), ()]):
        with pytest.raises(DataError, match="at least 2 different labels, received"):
            with_labels(table_task(), table(labels))


ORIGINAL = ("contradiction", "entailment", "neutral")
HUGGING_FACE = ("entailment", "neutral", "contradiction")


def test_the_models_order_is_kept():
    same = match_labels(ORIGINAL, ORIGINAL)
    assert (same.labels, same.note) == (ORIGINAL, "")
    other = match_labels(HUGGING_FACE, ORIGINAL, model_name="m")
    assert other.labels == HUGGING_FACE
    assert "m: the model's order is kept: entailment, neutral" in other.note


def test_other_names_are_refused():
    message = "m: its labels are a, b, but those of d are a, c; the same names"
    with pytest.raises(DataError, match=message):
        match_labels("ab", "ac", model_name="m", data_name="d")
    for model, data in (("ab", "abc"), ("abc", "ab"), ("Ab", "ab")):
        with pytest.raises(DataError, match="the same names"):
            match_labels(model, data)
    with pytest.raises(DataError, match="m: a label name occurs twice: a, a"):
        match_labels("aa", "ab", model_name="m")


def test_models_without_names_take_the_tasks_order():
    for model in (None, (), ("LABEL_0", "LABEL_1", "LABEL_2")):
        match = match_labels(model, ORIGINAL, num_labels=3, model_name="m")
        assert match.labels == ORIGINAL
        assert "m does not name its labels" in match.note
        assert "contradiction, entailment, neutral" in match.note
    with pytest.raises(DataError, match="expected 3 labels, .* a head for 2"):
        match_labels(("LABEL_0", "LABEL_1"), ORIGINAL)
    with pytest.raises(DataError, match="a head for 4"):
        match_labels(None, ORIGINAL, num_labels=4)
    assert not is_generic(("LABEL_1", "LABEL_0"))
    # Data may really use such names.
    assert match_labels(("LABEL_0", "LABEL_1"), ("LABEL_1", "LABEL_0")).note


def test_known_other_names_are_mapped():
    match = match_labels(
        ("positive", "negative"), ("0", "1"), aliases=LABEL_ALIASES["sst2"]
    )
    assert match.labels == ("1", "0")
    assert "positive, negative are read as 1, 0" in match.note


def choose(model_labels, labels=ORIGINAL, **kwargs):
    defaults = {
        "task": "mnli",
        "labels": labels,
        "problem_type": "single_label_classification",
        "head": "text_classifier",
        "model_head": "text_classifier",
        "model_labels": model_labels,
    }
    return choose_head(**(defaults | kwargs))


def test_training_starts_from_a_head_of_the_same_labels():
    choice = choose(HUGGING_FACE)
    assert choice.keep and choice.labels == HUGGING_FACE and choice.note
    assert choose(ORIGINAL, model_task="mnli") == choose(ORIGINAL)
    assert not choose(ORIGINAL).note


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"task": "rte", "labels": ("entailment", "not_entailment")},
            "new one for rte: it is for the labels contradiction, entailment, neutral",
        ),
        ({"task": "stsb", "labels": (), "problem_type": "regression"}, "for stsb: it"),
        ({"model_task": "snli"}, "it was trained on snli"),
        ({"model_labels": None}, "does not name its labels"),
        (
            {"model_problem_type": "multi_label_classification"},
            "it is for multi label classification",
        ),
        ({"labels": (), "model_labels": None}, "does not say what its output means"),
    ],
)
def test_another_task_keeps_the_encoder_and_says_so(arguments, reason):
    choice = choose(**({"model_labels": ORIGINAL} | arguments))
    assert not choice.keep
    assert "the encoder is kept, its head is replaced" in choice.note
    assert reason in choice.note


def test_pretrained_models_have_nothing_to_lose():
    choice = choose(None, model_head="pretraining")
    assert not choice.keep and not choice.note and choice.labels == ORIGINAL


def test_scores_keep_the_head_of_the_same_task():
    regression = {"labels": (), "problem_type": "regression", "task": "stsb"}
    assert choose(None, model_task="stsb", **regression).keep
    assert choose(None, model_problem_type="regression", **regression).keep
