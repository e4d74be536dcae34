"""Multiple choice: rows as the original's, answers, metrics, files, reports."""

import json

import numpy as np
import pytest

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.tasks.choice_files import ChoiceExamples
from albert_tf.tasks.registry import TASKS
from albert_tf.text.normalization import normalize_text

RACE = TASKS["race"]


def make(choices, labels=None, *, questions=None, contexts=None, **kwargs):
    n = len(choices)
    names = "q", "line ", "context "
    ids, where, own = ([f"{name}{i}" for i in range(n)] for name in names)
    texts = {"contexts": contexts or own, "questions": questions or [""] * n}
    about = {"path": "x", "ids": ids, "where": where, "groups": [""] * n} | kwargs
    return ChoiceExamples(choices=choices, labels=labels, **texts, **about)


def original_row(tokenizer, context, question, choice, max_seq, max_qa):
    """`RaceProcessor.read_examples` and `convert_single_example`, one choice."""
    context, question, choice = map(normalize_text, (context, question, choice))
    if "_" in question:
        text = question.replace("_", choice)
    else:
        text = " ".join([question, choice])
    a, b = tokenizer.encode(context), tokenizer.encode(text)[-max_qa:]
    if len(a) + len(b) > max_seq - 3:
        a = a[: max_seq - 3 - len(b)]
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    return [cls, *a, sep, *b, sep], len(a) + 2


def test_rows_are_those_of_the_original(tokenizer):
    contexts = ["The  Café was ﬁne . " * 9, "Short", "¨x " * 30]
    questions = ["Who has __ and _ ?", "  Which\tone ? ", "long question " * 9]
    choices = [["A_b", "Ça va", "¼ cup"], ["Yes", "no"], ["Ω ¨", "x", "y", "z"]]
    examples = make(
        choices, [2, 0, 3], contexts=contexts, questions=questions, fills_blanks=True
    )
    task = RACE.with_options(max_seq_length=40, max_qa_length=16)
    encoded = task.encode(examples, tokenizer)
    assert encoded.unit_splits.tolist() == [0, 3, 5, 9]
    assert encoded.targets[features.LABELS].tolist() == [2, 0, 3]
    assert encoded.truncated.tolist() == [True, False, True]
    assert len(encoded) == 3 and encoded.places is None
    r = 0
    for context, question, row in zip(contexts, questions, choices, strict=True):
        for choice in row:
            wanted = original_row(tokenizer, context, question, choice, 40, 16)
            a, b = encoded.rows.splits[r : r + 2]
            assert encoded.rows.ids[a:b].tolist() == wanted[0]
            assert encoded.rows.first_lengths[r] == wanted[1]
            r += 1
    assert encoded.rows.lengths.max() == 40


@pytest.mark.parametrize(
    ("fills", "text"),
    [
        (True, "context 0 a b d context 0 a c d"),
        # The vocabulary has no "_".
        (False, "context 0 a  \u2047  d b context 0 a  \u2047  d c"),
    ],
)
def test_blanks_stay_where_choices_follow(tokenizer, fills, text):
    examples = make([["b", "c"]], questions=["a _ d"], fills_blanks=fills)
    encoded = RACE.with_options(max_seq_length=64).encode(examples, tokenizer)
    assert tokenizer.decode(encoded.rows.ids.tolist()) == text


def test_long_choice_leaves_no_room(tokenizer):
    examples = make([["word " * 50, "x"]])
    task = RACE.with_options(max_seq_length=10, max_qa_length=128)
    encoded = task.encode(examples, tokenizer)
    assert encoded.rows.lengths[0] == 10
    assert encoded.rows.first_lengths[0] == 2
    assert encoded.targets == {}
    for bad in ({"max_seq_length": 4}, {"max_qa_length": 0}):
        with pytest.raises(UsageError, match="must be (at least|positive)"):
            RACE.with_options(**bad).encode(examples, tokenizer)


def evaluated(tokenizer, examples, logits):
    encoded = RACE.with_options(max_seq_length=32).encode(examples, tokenizer)
    outputs = {"logits": np.array(logits, np.float32)}
    return encoded, RACE.answers(examples, encoded, outputs)


def test_answers_and_metrics(tokenizer):
    choices, groups = [[*"ab"], [*"abc"], [*"abcd"]], ["middle", "high", "high"]
    examples = make(choices, [1, 0, 2], groups=groups, lettered=True)
    logits = [0, 1, 5, 5, 1, 0, 0, 0, 2]
    encoded, answers = evaluated(tokenizer, examples, logits)
    assert answers.predictions.tolist() == [1, 0, 3]
    assert [len(row) for row in answers.probabilities] == [2, 3, 4]
    assert all(row.sum() == pytest.approx(1) for row in answers.probabilities)
    assert RACE.compare(examples, answers) == {
        "accuracy": pytest.approx(2 / 3),
        "accuracy_middle": 1.0,
        "accuracy_high": 0.5,
        "majority_accuracy": pytest.approx(1 / 3),
        "chance_accuracy": pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3),
    }
    names = ["accuracy", "accuracy_middle", "accuracy_high"]
    assert RACE.metric_names(examples) == names
    table = RACE.cells(examples, answers)
    assert table[0][:4] == ["id", "label", "prediction", "probability_A"]
    assert table[1] == ["q0", "B", "B", "0.268941", "0.731059", "", ""]
    assert len({len(row) for row in table}) == 1
    last = RACE.rows(examples, answers)[-1]
    assert (last["prediction"], last["label"], last["choice"]) == ("D", "C", "d")
    report = RACE.report(examples, answers, encoded)
    assert report["confusion"][2] == [0, 0, 0, 1]
    assert report["groups"] == [
        {"name": "middle", "accuracy": 1.0},
        {"name": "high", "accuracy": 0.5},
    ]
    (error,) = report["errors"]
    assert (error["index"], error["label"], error["prediction"]) == (2, "C: c", "D: d")
    json.dumps(report)


def test_without_labels(tokenizer):
    examples = make([["a", "b"]] * 2)
    encoded, answers = evaluated(tokenizer, examples, [1, 0, 0, 1])
    assert RACE.cells(examples, answers)[0][:2] == ["id", "prediction"]
    assert "label" not in RACE.rows(examples, answers)[0]
    assert RACE.report(examples, answers, encoded) == {}
    assert RACE.collapse(examples, answers) == ""


def test_collapse(tokenizer):
    examples = make([["a", "b"]] * 8, [0, 1] * 4)
    _, answers = evaluated(tokenizer, examples, [0.5] * 16)
    assert "the same probability" in RACE.collapse(examples, answers)
    _, answers = evaluated(tokenizer, examples, [0, 1] * 8)
    assert "answers 1 to every" in RACE.collapse(examples, answers)
    one = examples.select([1, 3, 5, 7] * 2)
    assert one.ids[0] == "q1" and one.labels == [1] * 8
    assert RACE.collapse(one, answers) == ""
    _, answers = evaluated(tokenizer, examples, [0, 1, 1, 0] * 4)
    assert RACE.collapse(examples, answers) == ""
