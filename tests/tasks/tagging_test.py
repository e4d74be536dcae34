"""Tagging: rows, places, long sentences, answers, files, reports."""

import json

import numpy as np
import pytest

from albert_tf import features
from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import tagging
from albert_tf.tasks.tagging_files import TaggedExamples
from tests.text.kinds import bpe

pytest.importorskip("seqeval")

TASKS = {task.name: task for task in tagging.TASKS}
TASK = tagging.tagging_task("table", ("O", "B-P", "I-P", "B-L"))


def make(tokens, labels=None):
    n = len(tokens)
    labels = labels and [row.split() for row in labels]
    tokens = [row.split(" ") if row else [] for row in tokens]
    return TaggedExamples("x", [f"s{i}" for i in range(n)], tokens, labels, [1] * n)


@pytest.mark.parametrize("word", ["\u0301", "\ufe0f", "", "\u00a0", "\ufeff"])
def test_a_word_without_tokens_is_unknown(tokenizer, word):
    examples = TaggedExamples("x", ["0"], [["a", word, "b"]], None, [1])
    encoded = TASK.with_options(max_seq_length=16).encode(examples, tokenizer)
    assert len(encoded.places) == 3
    if not tokenizer.encode(word):
        place = encoded.places[1]
        assert encoded.rows.ids[place] == tokenizer.unk_id
    assert encoded.places[2] > encoded.places[1] > encoded.places[0]


def test_long_sentences_continue_at_words(tokenizer):
    """Rows of 6 tokens between the special ones, against a plain loop."""
    tokens = ["a b elodie c d e f g h", "", "x", "internationalization y"]
    labels = ["O " * 9, "", "B-P", "B-P I-P"]
    examples = make(tokens, labels)
    encoded = TASK.with_options(max_seq_length=8).encode(examples, tokenizer)
    rows, places, words = [], [], []
    for sentence in examples.tokens:
        for i, word in enumerate(sentence):
            pieces = tokenizer.encode(word)
            if i == 0 or len(rows[-1]) + len(pieces) > 7:
                rows.append([tokenizer.cls_id])
                words.append(0)
            places.append(len(rows[-1]))
            rows[-1] += pieces
            words[-1] += 1
    rows = [[*row, tokenizer.sep_id] for row in rows]
    assert encoded.rows.ids.tolist() == sum(rows, []) and len(rows) > 4
    assert encoded.rows.lengths.tolist() == encoded.rows.first_lengths.tolist()
    assert encoded.places.tolist() == places and len(places) == 12
    assert np.diff(encoded.place_splits).tolist() == words
    assert encoded.unit_splits.tolist() == [*range(len(rows) + 1)]
    assert encoded.truncated.tolist() == [False] * 4
    logits = np.eye(4, dtype=np.float32)[np.arange(12) % 4] * 9
    answers = TASK.answers(examples, encoded, {"logits": logits})
    tags = [TASK.labels[i % 4] for i in range(12)]
    assert answers.tags == [tags[:9], [], tags[9:10], tags[10:]]
    assert [len(row) for row in answers.scores] == [9, 0, 1, 2]


def test_words_keep_the_space_before_them():
    """With byte-level BPE, "IliveinLondon" has other tokens than four words."""
    tokenizer = bpe()
    encoded = tagging.encode_words([["I", "live", "in", "London"]], tokenizer, 64)
    tokens = tokenizer.encode(" I live in London")
    assert encoded.rows.ids.tolist() == [tokenizer.cls_id, *tokens, tokenizer.sep_id]


def test_a_word_longer_than_a_row_is_cut(tokenizer):
    examples = make(["a " + "x" * 99 + " b", "c"], ["O B-L O", "O"])
    encoded = TASK.with_options(max_seq_length=7).encode(examples, tokenizer)
    assert encoded.rows.lengths.tolist() == [3, 7, 3, 3]
    assert encoded.truncated.tolist() == [True, False]
    assert encoded.places.tolist() == [1, 1, 1, 1]
    assert encoded.targets[features.LABELS].tolist() == [0, 3, 0, 0]
    with pytest.raises(UsageError, match="max_seq_length must be at least 3"):
        TASK.with_options(max_seq_length=2).encode(examples, tokenizer)


def test_unknown_tags_are_refused(tokenizer):
    examples = make(["a b"], ["O B-X"])
    with pytest.raises(DataError, match="line 2: expected one of the tags O, .*'B-X'"):
        TASK.encode(examples, tokenizer)


def evaluated(tokenizer, task, examples, predictions):
    encoded = task.with_options(max_seq_length=32).encode(examples, tokenizer)
    classes = [task.labels.index(tag) for tag in predictions.split()]
    logits = np.eye(len(task.labels), dtype=np.float32)[classes]
    outputs = {"logits": logits}
    return encoded, task.answers(examples, encoded, outputs)


def test_answers_metrics_and_files(tokenizer):
    examples = make(["Ann Lee is", "in Oslo"], ["B-P I-P O", "O B-L"])
    encoded, answers = evaluated(tokenizer, TASK, examples, "B-P I-P O O O")
    values = TASK.compare(examples, answers)
    assert values["f1"] == values["f1_surface"] == pytest.approx(2 / 3)
    assert (values["accuracy"], values["majority_accuracy"]) == (0.8, 0.4)
    names = TASK.metric_names(examples)
    assert names == [name for name in values if not name.startswith("majority")]
    assert TASK.selecting_metric == "f1"
    rows = [["Ann", "B-P", "B-P"], ["Lee", "I-P", "I-P"], ["is", "O", "O"], []]
    rows += [["in", "O", "O"], ["Oslo", "B-L", "O"], []]
    assert TASK.cells(examples, answers) == rows
    expected = {"id": "s1", "tokens": ["in", "Oslo"], "prediction": ["O", "O"]}
    assert TASK.rows(examples, answers)[1] == {**expected, "label": ["O", "B-L"]}
    report = TASK.report(examples, answers, encoded)
    assert report["confusion"][3] == [1, 0, 0, 0]
    assert [row["label"] for row in report["per_class"]] == ["L", "P"]
    assert len(report["calibration"]) == 5
    (error,) = report["errors"]
    assert (error["label"], error["prediction"]) == ("L: Oslo", "no entity")
    json.dumps(report)


def test_answers_without_labels_and_with_odd_words(tokenizer):
    examples = TaggedExamples("x", ["0"], [["a\tb\n", "c"]], None, [1])
    encoded, answers = evaluated(tokenizer, TASK, examples, "O B-L")
    assert TASK.cells(examples, answers) == [["a b", "O"], ["c", "B-L"], []]
    assert "label" not in TASK.rows(examples, answers)[0]
    assert TASK.report(examples, answers, encoded) == {}
    assert TASK.collapse(examples, answers) == ""


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        # IOB1: B- only where two entities of a type touch, as in a known NER model.
        (("O", "I-P", "B-L", "I-L"), "I-P I-P O O B-L"),
        (("O", "S-L", "B-P", "E-P"), "B-P E-P O O S-L"),
        (("P_I", "O", "L_I"), "I-P I-P O O I-L"),
        (("O", "PP", "L2"), "I-PP I-PP O O I-L2"),
    ],
)
def test_a_model_of_another_scheme_is_scored_by_its_entities(
    tokenizer, labels, predictions
):
    task = tagging.tagging_task("table", labels)
    p, other = ("PP", "L2") if "PP" in labels else ("P", "L")
    known = [f"B-{p} I-{p} O", f"O B-{other}"]
    examples = make(["Ann Lee is", "in Oslo"], known)
    encoded, answers = evaluated(tokenizer, task, examples, predictions)
    index = [task.labels.index(tag) for tag in predictions.split()]
    assert encoded.targets[features.LABELS].tolist() == index
    values = task.compare(examples, answers)
    assert values["f1"] == values["f1_strict"] == values["accuracy"] == 1
    report = task.report(examples, answers, encoded)
    assert not report["errors"] and np.trace(report["confusion"]) == 5


def test_collapse(tokenizer):
    examples = make(["Ann Lee"], ["B-P O"])
    _, answers = evaluated(tokenizer, TASK, examples, "O O")
    assert "every word the tag O" in TASK.collapse(examples, answers)
    _, answers = evaluated(tokenizer, TASK, examples, "O B-L")
    assert TASK.collapse(examples, answers) == ""
    plain = make(["is"], ["O"])
    _, answers = evaluated(tokenizer, TASK, plain, "O")
    assert TASK.collapse(plain, answers) == ""


def test_tags_that_mark_no_entities(tokenizer):
    task = tagging.tagging_task("table", ("N", "V"))
    assert task.selecting_metric == "accuracy"
    examples = make(["Ann is"], ["N V"])
    encoded, answers = evaluated(tokenizer, task, examples, "N N")
    values = task.compare(examples, answers)
    assert values["accuracy"] == 0.5 and "f1_surface" not in values
    names = task.metric_names(examples)
    assert names == [name for name in values if not name.startswith("majority")]
    report = task.report(examples, answers, encoded)
    assert "per_class" not in report
    assert report["errors"][0]["prediction"] == "N N"


def test_labels_of_own_data(caplog):
    train = make(["a b c"], ["I-P O B-P"])
    dev = make(["a"], ["B-L"])
    task = tagging.tagging_task("table")
    assert tagging.with_labels(task, train).labels == ("O", "B-P", "I-P")
    with caplog.at_level("WARNING"):
        found = tagging.with_labels(task, train, [dev, make(["a"])])
    assert found.labels == ("O", "B-L", "B-P", "I-P")
    assert "the tags B-L do not occur" in caplog.text
    assert tagging.with_labels(TASK, train) is TASK
    fixed = tagging.tagging_task("table", ("O", "B-PER", "X-PER"))
    with pytest.raises(UsageError, match="^labels: expected only .* received 'X-PER'$"):
        tagging.with_labels(fixed, train)
    words = tagging.with_labels(task, make(["a b"], ["V N"]))
    assert words.labels == ("N", "V") and words.selecting_metric == "accuracy"
    with pytest.raises(DataError, match="at least 2 different tags, received only 'O'"):
        tagging.with_labels(task, make(["a"], ["O"]))
    many = make(["a " * 400], [" ".join(f"t{i}" for i in range(400))])
    with pytest.raises(UsageError, match="received 400.*--many_labels"):
        tagging.with_labels(task, many)
    assert len(tagging.with_labels(task, many, many_labels=True).labels) == 400
