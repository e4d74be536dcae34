"""The examples of a run are recognized by all that its results are made of."""

import collections
import dataclasses
import json

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import opening
from albert_tf.tasks.choice_files import ChoiceExamples
from albert_tf.tasks.multiple_choice import choice_task
from albert_tf.tasks.task import EncodedExamples
from albert_tf.text.inputs import encode_texts
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.examples import RunExamples, Split, encode, read_task
from albert_tf.training.finetune_settings import FinetuneSettings
from tests.tiny import GOLDEN, SPIECE

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
    rows = encode_texts(AlbertTokenizer(SPIECE), ["x"] * 4, None, max_seq_length=9)
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


def test_all_answers_to_a_question_are_content(tokenizer, tmp_path):
    """The rows have the first answer only, the scores all of them."""
    digests = []
    for texts in (("It", "It rains"), ("It", "It rains"), ("It", "It rain")):
        answers = [{"text": text, "answer_start": 0} for text in texts]
        question = {"id": "q", "question": "What falls?", "answers": answers}
        paragraph = {"context": "It rains.", "qas": [question]}
        content = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
        (tmp_path / "dev.json").write_text(json.dumps({**content, "version": "1.1"}))
        task, found = opening.open_task(
            FinetuneSettings(
                output_dir="o",
                init_checkpoint="c",
                task="squad1",
                train_file=str(GOLDEN / "squad/train-v1.1.json"),
                dev_file=str(tmp_path / "dev.json"),
            )
        )
        digests.append(encode(task, {"train": found["dev"]}, tokenizer).digest())
    assert digests[0] == digests[1] != digests[2]


def test_rows_without_text_are_said(tokenizer, tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nIt rains.,a\n,b\n \u0301,b\n")
    settings = FinetuneSettings(
        output_dir="o", init_checkpoint="c", train_file=str(path), many_labels=True
    )
    task, found = opening.open_task(settings)
    encode(task.with_options(max_seq_length=16), found, tokenizer)
    assert "a.csv: 2 rows of training examples have no text" in caplog.text


def read(path, **changes):
    """Returns the splits that a run has."""
    values = {"init_checkpoint": "c", "train_file": str(path), **changes}
    return read_task(FinetuneSettings(output_dir="o", **values))[2]


def test_dev_examples_are_held_back_from_all_labels_alike(tmp_path, caplog):
    labels = ["rare"] * 10 + ["usual"] * 40 + ["common"] * 150
    table = tmp_path / "a.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{x}\t{x}\n" for x in labels))
    assert list(read(table)) == ["train"]
    assert "no dev examples" in caplog.text and "--dev_fraction" in caplog.text
    found = read(table, dev_fraction=0.1)
    assert collections.Counter(found["dev"].labels) == {
        **{"rare": 1, "usual": 4, "common": 15}
    }
    rows = sorted(map(int, found["train"].ids + found["dev"].ids))
    assert rows == list(range(200))
    # Several seeds are compared on the same examples.
    assert read(table, dev_fraction=0.1, seed=2)["dev"].ids == found["dev"].ids
    for share, changes in ((0.001, {}), (0.5, {"dev_file": str(table)})):
        with pytest.raises(UsageError, match=f"dev_fraction: .*{share}"):
            read(table, dev_fraction=share, **changes)


@pytest.mark.parametrize(("share", "count"), [(0.1, 1), (0.9, 3)])
def test_no_label_is_lost_to_the_dev_examples(tmp_path, share, count):
    table = tmp_path / "a.tsv"
    labels = ["usual"] * 40 + ["rare"] * count
    table.write_text("text\tlabel\n" + "".join(f"{x}\t{x}\n" for x in labels))
    message = f"a.tsv: dev_fraction={share} needs .* received {count} of 'rare'"
    message += "; --dev_fraction=0 trains on all"
    with pytest.raises(DataError, match=message):
        read(table, dev_fraction=share)
    # Spellings of a label are one.
    labels = ["1.0", *["1"] * 9, *["2"] * 10]
    table.write_text("text\tlabel\n" + "".join(f"x\t{x}\n" for x in labels))
    single = {"problem_type": "single_label_classification"}
    assert len(read(table, dev_fraction=0.2, **single)["dev"]) == 4
    # Scores and several labels are no classes of which each needs a share.
    scores = "".join(f"{i}\t{i}.5\n" for i in range(20))
    table.write_text("text\tlabel\n" + scores)
    found = read(table, dev_fraction=0.2, problem_type="regression")
    assert {k: len(v) for k, v in found.items()} == {"train": 16, "dev": 4}
    table.write_text("text\tlabel\n" + "x\ta,b\ny\tb\nz\ta\nx y\t\n" + "w\tb\n" * 6)
    several = {"problem_type": "multi_label_classification", "label_separator": ","}
    found = read(table, dev_fraction=0.5, **several)
    assert {k: len(v) for k, v in found.items()} == {"train": 5, "dev": 5}


def test_questions_about_one_text_stay_together(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"context": f"c{i % 5}", "choices": ["a", "b"], "label": i % 2}
        for i in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read(path, dev_fraction=0.4)
    assert len(found["dev"]) == 12
    assert not {*found["dev"].contexts} & {*found["train"].contexts}
    squad = str(GOLDEN / "squad" / "train-v1.1.json")
    with_articles = read(squad, task="squad1", dev_fraction=0.5, on_bad_input="skip")
    articles = [{x.article for x in part.items} for part in with_articles.values()]
    assert len(articles) == 2 and not articles[0] & articles[1]


def test_a_set_of_two_parts_keeps_its_test_examples(monkeypatch, tmp_path):
    table = tmp_path / "a.tsv"
    table.write_text("text\tlabel\n" + "x\ta\ny\tb\n" * 20)
    places = {"output_dir": "o", "init_checkpoint": "c"}
    task, examples = opening.open_task(
        FinetuneSettings(**places, train_file=str(table))
    )
    whole = {"train": examples["train"], "test": examples["train"]}
    monkeypatch.setattr(opening, "open_task", lambda settings, like: (task, whole))
    settings = FinetuneSettings(**places, data_dir="tfds:imdb_reviews")
    settings, _, found = read_task(settings)
    assert {name: len(part) for name, part in found.items()} == {
        **{"train": 36, "dev": 4, "test": 40}
    }
    assert settings.dev_fraction == 0.1
