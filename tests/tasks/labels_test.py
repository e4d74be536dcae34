"""Labels: what they are, as numbers, and how those of models and data fit together."""

import types

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.labels import (
    choose_head,
    choose_problem_type,
    find_labels,
    is_generic,
    make_targets,
    match_labels,
    usable,
)
from albert_tf.tasks.registry import TASKS
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from albert_tf.tasks.text_classification import table_task, with_labels
from albert_tf.tasks.text_tables import TextTable

SINGLE = table_task(["a", "b"])
MULTI = table_task(["a", "b", "c"], MULTI_LABEL)
SCORES = table_task(problem_type=REGRESSION)


def table(labels):
    texts, lines = ["x"] * len(labels), list(range(2, 99))
    return TextTable("t.tsv", texts, None, list(labels), lines)


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
    assert left.skipped == {"rows without a valid label": 1}
    assert "rows without a valid label 1" in caplog.text
    with pytest.raises(DataError, match="no row has a valid label"):
        usable(task, table([label]), "skip")
    assert usable(task, left) is left


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


@pytest.mark.parametrize("labels", [["0,5", "1"], ["85%", "20.5 %"], ["1,2", "2,3"]])
def test_numbers_written_in_other_ways_are_no_classes(labels):
    with pytest.raises(
        DataError, match=f"line 2: the label is '{labels[0]}', a number"
    ):
        choose_problem_type(table(labels))
    assert choose_problem_type(table(labels), SINGLE_LABEL) == SINGLE_LABEL


def test_the_training_table_defines_the_task():
    scores = with_labels(table_task(), table(["1.5", "2.0"]))
    assert (scores.labels, scores.selecting_metric) == ((), "pearson")
    several = with_labels(table_task(), table([("b", "a"), (), ("c",)]))
    assert (several.labels, several.selecting_metric) == (("a", "b", "c"), "f1")
    # Whole numbers are sorted as such.
    assert with_labels(table_task(), table(["10", "9", "10"])).labels == ("9", "10")
    numbers = with_labels(table_task(), table(["1", "2"]), problem_type=REGRESSION)
    assert numbers.problem_type == REGRESSION
    given = with_labels(table_task(["c", "b", "a"]), table([("b", "a"), ()]))
    assert (given.labels, given.problem_type) == (("c", "b", "a"), MULTI_LABEL)
    with pytest.raises(UsageError, match="labels: scores have none"):
        with_labels(SINGLE, table(["1"]), problem_type=REGRESSION)


def test_spellings_of_a_label_are_one(caplog):
    rows = ["1.0", "1", "1.", "2", "1.1", "1.10", "True", "true", "01", "Spam", "spam"]
    task = table_task(find_labels(rows := table(rows)))
    assert len(task.labels) == 8 and "'Spam' and 'spam' are two" in caplog.text
    number = dict(zip(rows.labels, make_targets(task, rows).tolist(), strict=True))
    assert number["1"] == number["1.0"] != number["01"]
    assert number["true"] == number["True"] and number["Spam"] != number["spam"]


def test_cells_that_are_more_or_less_than_a_label(caplog):
    assert len(find_labels(table(["a", "b", "a, b", "a,c"]))) == 4
    assert "'a, b' joins others" in caplog.text and "a,c" not in caplog.text
    assert len(find_labels(table(["x|y", "y|z", "x|z"]))) == 3
    assert "'x|y' joins others" in caplog.text
    assert len(find_labels(table(["nan", "naan"]))) == 2
    assert "'nan' is read as a label; pandas" in caplog.text
    with pytest.raises(DataError, match="line 4: the label is NaN, not a number"):
        find_labels(table(["1", "0", "NaN"]))


@pytest.mark.parametrize(
    "rows", [[("0", "1")] * 2, [("0", "0")], [("0.2", "0.8")], [("0", "2", "0")]]
)
def test_vectors_are_no_names(rows):
    message = "line 2: .* a number for each class, .*--l"
    for kind in (MULTI_LABEL, "auto"):
        with pytest.raises(DataError, match=message):
            choose_problem_type(table(rows), kind)
    ids = table([("0", "1"), ("1",)])
    assert choose_problem_type(ids) == MULTI_LABEL


def test_empty_labels_and_one_class():
    rows = table(["a", "", "b"])
    with pytest.raises(DataError, match="line 3: the label is empty"):
        with_labels(table_task(), rows)
    assert with_labels(table_task(), rows, on_bad_input="skip").labels == ("a", "b")
    for labels in (["a", "a"], [("a",), ()], [(), ()]):
        with pytest.raises(DataError, match="at least 2 different labels, received"):
            with_labels(table_task(), table(labels))


MNLI = TASKS["mnli"]
HUGGING_FACE = ("entailment", "neutral", "contradiction")


def test_the_models_order_is_kept():
    assert match_labels(MNLI.labels, MNLI) == (MNLI.labels, "")
    labels, note = match_labels(HUGGING_FACE, MNLI, model_name="m")
    assert labels == HUGGING_FACE
    assert "m: the model's order is kept: entailment, neutral" in note
    upper = [label.upper() for label in HUGGING_FACE]
    labels, note = match_labels(upper, MNLI, model_name="m")
    assert labels == HUGGING_FACE and "ENTAILMENT, NEUTRAL" in note


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("ab", "ac", "m: its labels are a, b, but task table has the labels a, c; the"),
        ("ab", "abc", "the same names are needed"),
        ("abc", "ab", "the same names are needed"),
        ("aAb", "ab", "the same names are needed"),
        ("aa", "ab", "m: a label name occurs twice: a, a"),
    ],
)
def test_other_names_are_refused(model, data, message):
    with pytest.raises(DataError, match=message):
        match_labels(model, table_task(data), model_name="m")


def test_models_without_names_take_the_tasks_order():
    for model in (None, (), ("LABEL_0", "LABEL_1", "LABEL_2")):
        labels, note = match_labels(model, MNLI, num_labels=3, model_name="m")
        assert labels == MNLI.labels
        assert "m does not name its labels" in note
        assert "contradiction, entailment, neutral" in note
    with pytest.raises(DataError, match="expected 3 labels, .* a head for 2"):
        match_labels(("LABEL_0", "LABEL_1"), MNLI)
    with pytest.raises(DataError, match="a head for 4"):
        match_labels(None, MNLI, num_labels=4)
    assert not is_generic(("LABEL_1", "LABEL_0"))
    # Data may really use such names.
    task = table_task(("LABEL_1", "LABEL_0"))
    assert "the model's order" in match_labels(("LABEL_0", "LABEL_1"), task)[1]


def test_known_other_names_are_mapped():
    labels, note = match_labels(("positive", "negative"), TASKS["sst2"])
    assert labels == ("1", "0")
    assert "positive, negative are read as 1, 0" in note


def choose(task, labels, /, **changes):
    """What is chosen for a checkpoint that says no more than is given."""
    values = {"head": task.head, "task": None, "problem_type": None, "path": "m"}
    values |= {"labels": labels} | changes
    return choose_head(task, types.SimpleNamespace(**values))


def test_training_starts_from_a_head_of_the_same_labels():
    labels, note = choose(MNLI, HUGGING_FACE)
    assert labels == HUGGING_FACE and note
    assert choose(MNLI, MNLI.labels, task={"name": "mnli"}) == (MNLI.labels, "")
    assert choose(TASKS["stsb"], None, task={"name": "stsb"}) == ((), "")
    assert choose(TASKS["stsb"], None, problem_type=REGRESSION) == ((), "")


@pytest.mark.parametrize(
    ("task", "labels", "changes", "reason"),
    [
        ("rte", MNLI.labels, {}, "for rte: it is for the labels contradiction, entail"),
        ("stsb", MNLI.labels, {}, "for stsb: it is for the labels contradiction"),
        ("mnli", MNLI.labels, {"task": {"name": "x"}}, "it was trained on x"),
        ("mnli", None, {}, "it does not name its labels"),
        ("mnli", MNLI.labels, {"problem_type": MULTI_LABEL}, "is for multi label cl"),
        ("stsb", None, {}, "it does not say what its output means"),
    ],
)
def test_another_task_keeps_the_encoder_and_says_so(task, labels, changes, reason):
    kept, note = choose(TASKS[task], labels, **changes)
    assert kept is None
    assert "m: the encoder is kept, its head is replaced" in note and reason in note


def test_pretrained_models_have_nothing_to_lose():
    assert choose(MNLI, None, head="pretraining") == (None, "")
