"""The tasks of SQuAD, and what their family makes of outputs."""

import dataclasses
import shutil

import numpy as np
import pytest

from albert_tf import features
from albert_tf.errors import DataError
from albert_tf.tasks import squad, squad_files
from albert_tf.tasks.task import Options
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import GOLDEN, SPIECE

TOKENIZER = AlbertTokenizer(SPIECE)
OPTIONS = Options(max_seq_length=64, doc_stride=16, max_query_length=16)
SQUAD1, SQUAD2 = (dataclasses.replace(task, options=OPTIONS) for task in squad.TASKS)


def dev(unanswerable: bool = True):
    folder = str(GOLDEN / "squad" / "dev-v2.0.json")
    questions = SQUAD2.splits["dev"].read(folder)
    if not unanswerable:
        rows = [i for i, item in enumerate(questions.items) if item.answers]
        questions = dataclasses.replace(questions.select(rows), unanswerable=False)
    return questions, SQUAD2.encode(questions, TOKENIZER)


def right_logits(encoded) -> dict:
    """Logits of a model that knows every answer, or that there is none."""
    start = np.zeros(len(encoded.rows.ids), np.float32)
    end = start.copy()
    base = encoded.rows.splits[:-1]
    start[base + encoded.targets[features.START_POSITIONS]] = 9
    end[base + encoded.targets[features.END_POSITIONS]] = 9
    return {"start_logits": start, "end_logits": end}


def test_recipes_are_those_of_table_14():
    assert {task.name: dataclasses.astuple(task.recipe) for task in squad.TASKS} == {
        "squad1": (5e-5, 48, 0.0, 3649, 365, 384),
        "squad2": (3e-5, 48, 0.0, 8144, 814, 512),
    }
    assert [task.options.max_seq_length for task in squad.TASKS] == [384, 512]


def test_official_names_and_a_single_file(tmp_path):
    shutil.copy(GOLDEN / "squad" / "train-v1.1.json", tmp_path)
    train = SQUAD1.splits["train"].read(str(tmp_path))
    assert train.training and not train.unanswerable and len(train) == 15
    single = SQUAD1.splits["train"].read(str(tmp_path / "train-v1.1.json"))
    assert single.ids == train.ids
    with pytest.raises(DataError, match="no file dev-v1.1.json"):
        SQUAD1.splits["dev"].read(str(tmp_path))
    assert SQUAD2.splits["train"].names == ("train-v2.0.json",)


def test_perfect_answers_of_1_1():
    questions, encoded = dev(unanswerable=False)
    answers = SQUAD1.answers(questions, encoded, right_logits(encoded))
    scores = SQUAD1.compare(questions, answers)
    assert scores == {"exact_match": 100.0, "f1": 100.0}
    assert SQUAD1.metric_names(questions) == list(scores)
    assert not SQUAD1.collapse(questions, answers)
    report = SQUAD1.report(questions, answers, encoded)
    assert report["groups"] == report["errors"] == []
    assert [right for _, right in report["calibration"]] == [1] * len(questions)


def test_perfect_answers_of_2_0():
    questions, encoded = dev()
    outputs = right_logits(encoded)
    task = SQUAD2.calibrate(questions, encoded, outputs)
    answers = task.answers(questions, encoded, outputs)
    scores = SQUAD2.compare(questions, answers)
    assert scores["f1"] == scores["HasAns_f1"] == scores["NoAns_exact"] == 100.0
    assert scores["best_f1"] == 100.0 and scores["total"] == 20
    assert scores["majority_f1"] == 25.0
    prefixes = ("", "HasAns_", "NoAns_", "best_")
    names = [f"{prefix}{name}" for prefix in prefixes for name in ("exact", "f1")]
    assert SQUAD2.metric_names(questions) == names and {*names} < {*scores}
    answerable = [i for i, labels in enumerate(questions.labels) if labels]
    some = SQUAD2.metric_names(questions.select(answerable))
    assert some == [name for name in names if not name.startswith("NoAns")]
    assert scores["null_threshold"] == task.options.null_threshold


def test_f1_is_that_of_what_is_written():
    questions, encoded = dev()
    low = SQUAD2.with_options(null_threshold=-1e9)
    answers = low.answers(questions, encoded, right_logits(encoded))
    scores = SQUAD2.compare(questions, answers)
    assert scores["f1"] == scores["majority_f1"] == 25.0
    assert scores["HasAns_f1"] == 0.0 and scores["best_f1"] == 100.0
    reason = SQUAD2.collapse(questions, answers)
    assert reason == "none of 20 questions is answered, 15 have an answer"
    report = SQUAD2.report(questions, answers, encoded)
    assert report["groups"] == [
        {"name": "answerable", "exact": 0.0, "f1": 0.0},
        {"name": "unanswerable", "exact": 100.0, "f1": 100.0},
    ]
    assert len(report["errors"]) == 15
    error = next(e for e in report["errors"] if e["index"] == 3)
    assert error["label"] == "Saint-Ouen | the village of Saint-Ouen"
    assert error["prediction"] == "" and error["score"] == 0.0
    assert error["text"].startswith("Which village did the band come from?\n\n")
    assert "village of Saint-Ouen played" in error["text"]


def test_constant_answers_are_a_collapse():
    questions, encoded = dev(unanswerable=False)
    outputs = right_logits(encoded)
    answers = SQUAD1.answers(questions, encoded, outputs)
    same = dataclasses.replace(answers, best=answers.best[:1] * len(questions))
    reason = SQUAD1.collapse(questions, same)
    assert reason == "the answer to all 15 questions is '1,204'"
    alone = questions.select([0])
    one = dataclasses.replace(answers, ids=alone.ids, best=answers.best[:1])
    assert not SQUAD1.collapse(alone, one)


def test_worst_errors_come_first_and_are_short():
    questions, encoded = dev(unanswerable=False)
    texts = ["x" * 3000 + text + "\ud800" * 3000 for text in questions.contexts]
    long = dataclasses.replace(questions, contexts=texts)
    rng, size = np.random.default_rng(0), len(encoded.rows.ids)
    outputs = {n: rng.standard_normal(size) for n in right_logits(encoded)}
    answers = SQUAD1.answers(questions, encoded, outputs)
    report = SQUAD1.report(long, answers, encoded)
    assert len(report["errors"]) > 5
    scores = [error["score"] for error in report["errors"]]
    assert scores == sorted(scores)
    sure = [report["calibration"][e["index"]][0] for e in report["errors"]]
    worst = [s for s, score in zip(sure, scores, strict=True) if score == 0]
    assert worst == sorted(worst, reverse=True)
    for error in report["errors"]:
        assert len(error["text"]) <= 1000
        error["text"].encode()


def test_confidence_of_the_beam_head():
    questions, encoded = dev()
    rows = len(encoded.rows)
    outputs = {"cls_logits": np.full(rows, 2.0)}
    for name in ("start", "end"):
        outputs[f"{name}_index"] = np.full((rows, 1), encoded.rows.first_lengths[0])
        outputs[f"{name}_log_probs"] = np.full((rows, 1), -1.0)
    answers = SQUAD2.answers(questions, encoded, outputs)
    report = SQUAD2.report(questions, answers, encoded)
    assert answers.texts == [""] * 20
    sure = 1 / (1 + np.exp(-2.0))
    assert np.allclose([p for p, _ in report["calibration"]], sure)


def test_articles_are_held_back_for_2_0_only(caplog):
    source = squad_files.SquadSource(unanswerable=True, training=True)
    train = source.read_file(str(GOLDEN / "squad" / "train-v1.1.json"))
    rest, held = SQUAD2.hold_back(train, seed=1)
    assert len(rest) + len(held) == len(train) and len(held)
    plain = dataclasses.replace(train, unanswerable=False)
    assert SQUAD1.hold_back(plain, seed=1) == (plain, None)
    one = train.select(range(4))
    assert SQUAD2.hold_back(one, seed=1) == (one, None)
    assert "all questions are about one article" in caplog.text
    questions, encoded = dev(unanswerable=False)
    outputs = right_logits(encoded)
    assert SQUAD1.calibrate(questions, encoded, outputs) is SQUAD1


def test_questions_without_labels():
    questions, encoded = dev()
    unlabelled = dataclasses.replace(questions, labelled=False)
    encoded = SQUAD2.encode(unlabelled, TOKENIZER)
    assert encoded.targets == {}
    outputs = dict.fromkeys(("start_logits", "end_logits"), np.zeros(9999))
    answers = SQUAD2.answers(unlabelled, encoded, outputs)
    assert len(answers.texts) == 20
    assert SQUAD2.report(unlabelled, answers, encoded) == {}
    assert SQUAD2.collapse(unlabelled, answers) == ""


def test_training_questions_that_are_scored():
    """All of them can be answered, also those that cannot be trained on."""
    train = SQUAD1.splits["train"].read(str(GOLDEN / "squad" / "train-v1.1.json"))
    small = SQUAD1.with_options(max_seq_length=9, doc_stride=1, max_query_length=4)
    with pytest.raises(DataError, match="no window holds the whole answer"):
        small.encode(train, TOKENIZER)
    windows = small.encode(small.to_evaluate(train), TOKENIZER).detail
    assert set(windows.question) == set(range(15))
