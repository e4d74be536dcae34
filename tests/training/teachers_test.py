"""Outputs of a teacher: whose they are, in which order, and how they are kept."""

import dataclasses

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import rows_digest
from albert_tf.inference.predictor import Predictor
from albert_tf.jobs.folder import Workplace
from albert_tf.training import examples, teachers
from albert_tf.training.finetune_settings import FinetuneSettings
from tests.tiny import GOLDEN
from tests.training import runs

SCORES = {"problem_type": "regression", "num_labels": 1}
TEXTS = "text\nthe film was good\nbad\na day was the film\ngood day\nthe bad\n"
LABELLED = "text\tlabel\nthe film\tgood\nbad\tbad\na day\tgood\nthe day\tbad\n"
MANY = {"cache_teacher": "x.npz", "num_seeds": 2}
PAIRS = "text\tpositive\na\tb\nc\td\n"


def prepared(tmp_path, tokenizer, teacher, text=TEXTS, name="train.tsv", **changes):
    """Returns the arguments of `taught`."""
    path = tmp_path / name
    path.write_text(text)
    values = {"train_file": str(path), "teacher": teacher, "init_checkpoint": "m"}
    settings = FinetuneSettings(
        **runs.finetuning(tmp_path / "out", **values, **changes)
    )
    settings, task, parts = examples.read_task(settings)
    task = task.with_options(max_seq_length=40, max_query_length=16, doc_stride=9)
    data = examples.encode(task, parts, tokenizer)
    train = data.splits["train"]
    return settings, task, train.examples, train.encoded, tokenizer


@pytest.mark.parametrize("kind", ["classes", "several", "scores", "tags", "choices"])
def test_outputs_are_the_targets_of_their_examples(
    model_folder, tokenizer, tmp_path, kind
):
    names, several = ("b", "a"), "multi_label_classification"
    heads = {
        "classes": ("text_classifier", {"labels": names}),
        "several": ("text_classifier", {"labels": names, "problem_type": several}),
        "scores": ("text_classifier", SCORES),
        "tags": ("token_classifier", {"labels": ("O", "B-X", "I-X")}),
        "choices": ("multiple_choice", {}),
    }
    text, name, changes = TEXTS, "train.tsv", {}
    if kind == "tags":
        text, name = "Anna\ngoes\n\nto\nBerlin\nthe\n\nday\n", "train.conll"
    elif kind == "choices":
        row = '{"context": "it", "choices": ["a", "b"%s]}\n'
        text, name = row % "" + row % ', "c"' + row % "", "train.jsonl"
    elif kind != "scores":
        changes["labels"] = ("a", "b")
    head, options = heads[kind]
    teacher = model_folder(head, **options)
    arguments = prepared(tmp_path, tokenizer, teacher, text, name, **changes)
    _, task, part, encoded, _ = arguments
    assert part.labels is None and "labels" not in encoded.targets
    targets = teachers.taught(*arguments).targets
    logits, labels = targets["teacher_logits"], targets["labels"]
    model = Predictor.from_pretrained(teacher)
    found = model.outputs(model.encoded(part))["logits"]
    if kind == "choices":
        assert logits.shape == (3, 3) and logits[0, 2] == logits[2, 2] == -1e30
        np.testing.assert_array_equal(logits[logits > -1e29], found)
    elif kind in ("classes", "several"):
        assert task.labels == ("a", "b")
        np.testing.assert_array_equal(logits, found[:, ::-1])
    else:
        np.testing.assert_array_equal(logits, found)
    if kind == "scores":
        np.testing.assert_array_equal(labels, logits[:, 0])
    elif kind == "several":
        np.testing.assert_array_equal(labels, logits > 0)
    else:
        np.testing.assert_array_equal(labels, logits.argmax(-1))


def test_labels_are_kept_beside_a_teacher(model_folder, tokenizer, tmp_path):
    teacher = model_folder("text_classifier", labels=("good", "bad"))
    changes = {"teacher_weight": 0.5, "text": LABELLED}
    arguments = prepared(tmp_path, tokenizer, teacher, **changes)
    assert arguments[1].labels == ("bad", "good")
    assert teachers.taught(*arguments).targets["labels"].tolist() == [1, 0, 1, 0]


def test_questions_have_a_logit_for_each_token(model_folder, tokenizer, tmp_path):
    teacher = model_folder("question_answering", max_position_embeddings=64)
    file = (GOLDEN / "squad/train-v1.1.json").read_text()
    changes = {"task": "squad1", "on_bad_input": "skip"}
    arguments = prepared(tmp_path, tokenizer, teacher, file, "t.json", **changes)
    encoded, targets = arguments[3], teachers.taught(*arguments).targets
    logits = targets["teacher_logits"]
    assert logits.shape == (len(encoded.rows.ids), 2) and np.isfinite(logits).all()
    assert targets["start_positions"] is encoded.targets["start_positions"]
    for fields, message in (
        ({}, "at most 24, the longest .* teacher .* 40$"),
        ({"max_position_embeddings": 64, "type_vocab_size": 1}, "have the student's"),
    ):
        other = model_folder("question_answering", **fields)
        settings = dataclasses.replace(arguments[0], teacher=other)
        with pytest.raises(UsageError, match=message):
            teachers.taught(settings, *arguments[1:])
    moved = prepared(tmp_path, tokenizer, teacher, file, "moved.json", **changes)[2]
    assert rows_digest(moved) == rows_digest(arguments[2])


def test_vectors_of_texts_alone(model_folder, tokenizer, tmp_path):
    teacher = model_folder(None)
    arguments = prepared(tmp_path, tokenizer, teacher, table_kind="vectors")
    _, task, part, encoded, _ = arguments
    assert task.taught and len(encoded.rows) == len(encoded) == 5
    vectors = Embedder.from_pretrained(teacher)([text for (text,) in part.texts])
    np.testing.assert_array_equal(
        teachers.taught(*arguments).targets["labels"], vectors
    )


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_with_a_living_teacher_is_the_one_with_a_kept_file(
    model_folder, tables, pretrained, tmp_path
):
    """The second run stands for one that goes on after the first one's outputs."""
    settings = {
        **tables,
        "init_checkpoint": pretrained,
        "teacher": model_folder("text_classifier", labels=("good", "bad")),
        "num_train_steps": 4,
        "gradient_accumulation_steps": 2,
        "dropout": 0.1,
    }
    runs.run(tmp_path / "living", **settings)
    kept = {**settings, "cache_teacher": str(tmp_path / "kept.npz")}
    runs.run(tmp_path / "making", **kept)
    runs.run(tmp_path / "reading", **kept)
    for name in ("making", "reading"):
        runs.assert_same_run(tmp_path / "living", tmp_path / name)
    lines = runs.lines_of(tmp_path / "living", "train")
    assert all(line["loss"] == line["teacher_loss"] > 0 for line in lines)


class Stopped(BaseException):
    """Stands for the end of the process."""


def test_a_file_of_outputs(model_folder, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(teachers, "_PART", 2)
    teacher = model_folder("text_classifier", labels=("a", "b"))
    path = tmp_path / "kept.npz"
    arguments = prepared(tmp_path, tokenizer, teacher)
    living = teachers.taught(*arguments).targets["teacher_logits"]
    settings = dataclasses.replace(arguments[0], cache_teacher=str(path))
    arguments = (settings, *arguments[1:])
    write, load, done = Workplace.write, teachers._load, []

    def stopping(self, index, *others):
        write(self, index, *others)
        if index == 1:
            raise Stopped

    def counted(*arguments):
        compute = load(*arguments)
        return lambda part: done.append(len(part)) or compute(part)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Workplace, "write", stopping)
        teachers.taught(*arguments)
    monkeypatch.setattr(teachers, "_load", counted)
    assert not path.exists()
    np.testing.assert_array_equal(
        teachers.taught(*arguments).targets["teacher_logits"], living
    )
    assert done == [1] and [p.name for p in tmp_path.glob("kept*")] == ["kept.npz"]
    first = path.read_bytes()
    again = teachers.taught(*arguments).targets["teacher_logits"]
    np.testing.assert_array_equal(again, living)
    assert done == [1]
    other = model_folder("text_classifier", labels=("a", "b"), seed=9)
    for replaced, what in (
        ((dataclasses.replace(settings, teacher=other), *arguments[1:]), "teacher"),
        (
            (*arguments[:2], arguments[2].select([1, 0, 2, 3, 4]), *arguments[3:]),
            "set of exa",
        ),
    ):
        with pytest.raises(UsageError, match=f"kept.npz holds .* another {what}"):
            teachers.taught(*replaced)
    assert path.read_bytes() == first
    np.savez(path, record=np.frombuffer(b"[1]", np.uint8))
    with pytest.raises(DataError, match="cache_teacher: .* damaged or another file"):
        teachers.taught(*arguments)
    path.write_bytes(first[:-30])
    with pytest.raises(DataError, match="cache_teacher: .* damaged or another file"):
        teachers.taught(*arguments)


@pytest.mark.parametrize(
    ("head", "options", "changes", "message"),
    [
        ("text_classifier", {"labels": ("a", "b")}, {"text": LABELLED}, "same names"),
        ("text_classifier", {"num_labels": 3}, {"text": LABELLED}, "for 3 without"),
        ("text_classifier", SCORES, {"text": LABELLED}, "must be for single_label"),
        (
            "text_classifier",
            {"labels": ("a", "b")},
            {"problem_type": "regression"},
            "must be for regression",
        ),
        ("text_classifier", SCORES, {"teacher_temperature": 3.0}, "effect on scores"),
        ("token_classifier", {"labels": ("O", "B-X")}, {}, "have the head of the task"),
        ("text_embedder", {}, {}, "--table_kind=vectors"),
        (None, {}, {}, "has no trained classifier"),
        (None, {}, {"teacher_vectors": "v"}, "--teacher_vectors: cannot be combined"),
        (None, {}, {"label_smoothing": 0.1}, "requires a --teacher_weight"),
        (None, {}, {"teacher": "", "teacher_weight": 0.5}, "requires --teacher"),
        (None, {}, {"max_train_examples": 2, **MANY}, "for every seed"),
        ("text_classifier", {"labels": ("a", "b")}, {"dev_fraction": 0.5}, "a dev_fi"),
        (None, {}, {"table_kind": "vectors", "teacher_weight": 0.5}, "without effect"),
        (None, {}, {"table_kind": "vectors", "text": PAIRS}, "only for texts alone"),
    ],
)
def test_one_line_and_nothing_written(
    model_folder, tmp_path, head, options, changes, message
):
    changes = {"text": TEXTS, **changes}
    if changes["text"] == LABELLED:
        changes["teacher_weight"] = 0.5
    teacher = changes.pop("teacher", None)
    teacher = model_folder(head, **options) if teacher is None else teacher
    with pytest.raises(ValueError, match=message) as caught:
        prepared(tmp_path, None, teacher, **changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
