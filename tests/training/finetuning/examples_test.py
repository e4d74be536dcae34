"""The examples of a run are recognized by all that its results are made of."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.tasks.choices.choice_files import ChoiceExamples
from albert_tf.tasks.choices.multiple_choice import choice_task
from albert_tf.tasks.definitions.family import EncodedExamples
from albert_tf.text.inputs import encode_texts
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.finetuning.evaluation import Split
from albert_tf.training.finetuning.examples import RunExamples
from tests.training.finetuning.runs import GOLDEN, SPM_MODEL, run

QUESTIONS = ChoiceExamples(
    path="a/test",
    ids=["1", "2"],
    contexts=["It rains.", "It is late."],
    questions=["", ""],
    choices=[["a coat", "a hat"], ["I run", "I sing"]],
    labels=[0, np.int64(1)],
    where=["a/test/1.txt", "a/test/2.txt"],
    groups=["middle", "high"],
)


def digest(examples):
    rows = encode_texts(AlbertTokenizer(SPM_MODEL), ["x"] * 4, None, max_seq_length=9)
    encoded = EncodedExamples(rows, np.array([0, 2, 4]), {}, np.zeros(2, bool))
    split = Split(examples, encoded)
    return RunExamples(choice_task("race"), {"test": split}).digest()["test"]


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ["1", "3"]},
        {"groups": ["middle", "middle"]},
        {"labels": [1, 1]},
        {"choices": [["a coat", "a hat"], ["I run", "i sing"]]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_names_groups_and_texts_are_content(change):
    assert digest(dataclasses.replace(QUESTIONS, **change)) != digest(QUESTIONS)


def test_files_may_move():
    moved = {"path": "b/test", "where": ["b/1", "b/2"], "skipped": {"questions": 3}}
    assert digest(dataclasses.replace(QUESTIONS, **moved)) == digest(QUESTIONS)


def test_all_answers_to_a_question_are_content(pretrained, tmp_path):
    """The rows have the first answer only, the scores all of them."""
    dev = tmp_path / "dev.json"
    answers = [{"text": t, "answer_start": 0} for t in ("It", "It rains")]
    question = {"id": "q", "question": "What falls?", "answers": answers}
    paragraph = {"context": "It rains.", "qas": [question]}
    content = {"data": [{"title": "t", "paragraphs": [paragraph]}], "version": "1.1"}
    arguments = {
        "task": "squad1",
        "train_file": str(GOLDEN / "squad" / "train-v1.1.json"),
        "dev_file": str(dev),
        "on_bad_input": "skip",
        "init_checkpoint": pretrained,
        "max_seq_length": 24,
        "max_query_length": 6,
        "num_train_steps": 1,
    }
    dev.write_text(json.dumps(content))
    results = run(tmp_path / "out", **arguments)
    assert run(tmp_path / "out", **arguments) == results
    answers[1]["text"] = "It rain"
    dev.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"holds another run, .*dev"):
        run(tmp_path / "out", **arguments)
