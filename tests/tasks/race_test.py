"""Reading RACE: folders, joined files, text rules, bad articles."""

import json

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks import multiple_choice
from albert_tf.tasks.race import RaceSource

TASK = {task.name: task for task in multiple_choice.TASKS}["race"]


def article(name, **changes):
    return {
        "article": "Tom has a Café .",
        "questions": ["What has Tom ?", "Tom has a _ . A _ !"],
        "options": [["a cat", "a dog", "a cafe", "no"], ["Red", "Hat", "Owl", "x_y"]],
        "answers": ["C", "A"],
        "id": name,
    } | changes


def write(path, *articles, end=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(a) + end for a in articles), "utf-8")


def folder(tmp_path, split="train"):
    write(tmp_path / split / "middle" / "10.txt", article("middle10.txt"))
    write(tmp_path / split / "middle" / "2.txt", article("middle2.txt"))
    write(tmp_path / split / "high" / "1.txt", article("high1.txt"))
    (tmp_path / split / "high" / "._1.txt").write_bytes(b"\xff")
    return tmp_path


@pytest.mark.parametrize("parent", [True, False])
def test_folder_or_its_parent(tmp_path, parent):
    folder(tmp_path / "RACE")
    examples = TASK.splits["train"].read(str(tmp_path if parent else tmp_path / "RACE"))
    assert examples.ids[:3] == ["middle10.txt-0", "middle10.txt-1", "middle2.txt-0"]
    assert examples.groups == ["middle"] * 4 + ["high"] * 2
    assert examples.labels == [2, 0] * 3
    assert examples.choices[1] == ["Red", "Hat", "Owl", "x_y"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_joined_file_is_read_once(tmp_path, end):
    single = RaceSource(split="dev").read(str(folder(tmp_path, "dev")))
    for level, numbers in {"middle": (10, 2), "high": (1,)}.items():
        articles = [article(f"{level}{i}.txt") for i in numbers]
        write(tmp_path / "dev" / level / "all.txt", *articles, end=end)
    joined = RaceSource(split="dev").read(str(tmp_path))
    for name in ("ids", "contexts", "questions", "choices", "labels", "groups"):
        assert getattr(joined, name) == getattr(single, name)
    assert "all.txt: line " in joined.where[0]


def test_only_one_level(tmp_path):
    write(tmp_path / "test" / "high" / "1.txt", article("high1.txt"))
    assert RaceSource(split="test").read(str(tmp_path)).groups == ["high", "high"]


def test_test_data_without_answers(tmp_path):
    bare = article("a")
    del bare["answers"]
    write(tmp_path / "test" / "high" / "1.txt", bare)
    write(tmp_path / "train" / "high" / "1.txt", bare)
    assert RaceSource(split="test").read(str(tmp_path)).labels is None
    with pytest.raises(DataError, match="answers: expected a list, received nothing"):
        RaceSource(split="train").read(str(tmp_path))
    write(tmp_path / "test" / "high" / "2.txt", article("b"))
    with pytest.raises(DataError, match="1.txt: line 1: question 0 .* no answer"):
        RaceSource(split="test").read(str(tmp_path))


FOUR = ["a", "b", "c", "d"]
BAD = {
    "three options": (
        {"options": [FOUR, FOUR[:3]]},
        r"question 1 \(from 0\): expected 4 options, received 3",
    ),
    "answer E": ({"answers": ["A", "E"]}, "must be one of A, B, C, D, received 'E'"),
    "fewer answers": ({"answers": ["A"]}, "as questions, 2, received 2 and 1"),
    "fewer options": ({"options": [FOUR]}, "as questions, 2, received 1 and 2"),
    "null option": ({"options": [FOUR, [None, "b", "c", "d"]]}, "option A: expected"),
    "options": ({"options": "abcd"}, "options: expected a list, received 'abcd'"),
    "article": ({"article": ["a"]}, r"article: expected text, received \['a'\]"),
    "question": ({"questions": [1, "b"]}, "question: expected text, received 1"),
    "id": ({"id": 7}, "id: expected text, received 7"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_article_is_named(tmp_path, name, caplog):
    changes, message = BAD[name]
    write(tmp_path / "train" / "high" / "1.txt", article("a"))
    write(tmp_path / "train" / "high" / "2.txt", article("b", **changes))
    with pytest.raises(DataError, match=r"2\.txt: line 1: .*" + message) as e:
        RaceSource(split="train").read(str(tmp_path))
    assert "\n" not in str(e.value)
    examples = RaceSource(split="train", on_bad_input="skip").read(str(tmp_path))
    assert examples.ids == ["a-0", "a-1"]
    assert examples.skipped == {"malformed articles": 1}
    assert "malformed articles 1" in caplog.text


FILES = {
    "empty": (b"", "received an empty file"),
    "cut": (b'\n\n{"article": "x', "all.txt: line 3: not JSON"),
    "list": (b"[1]", "expected a JSON object, received list"),
    "deep": (b"[" * 100_000, "line 1: not JSON"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_file(tmp_path, name):
    data, message = FILES[name]
    (tmp_path / "dev" / "high").mkdir(parents=True)
    (tmp_path / "dev" / "high" / "all.txt").write_bytes(data)
    with pytest.raises(DataError, match=message):
        RaceSource(split="dev").read(str(tmp_path))


def test_missing_folders(tmp_path):
    with pytest.raises(DataError, match="no folder train or RACE/train"):
        RaceSource(split="train").read(str(tmp_path))
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="folders middle and high"):
        RaceSource(split="train").read(str(tmp_path))
    (tmp_path / "train" / "high").mkdir()
    with pytest.raises(DataError, match="expected .txt files, found none"):
        RaceSource(split="train").read(str(tmp_path))
    with pytest.raises(UsageError, match="data_dir"):
        RaceSource(split="train").read()


def test_same_id_twice():
    with pytest.raises(DataError, match="row 1: the id 'a' is already that of x: row"):
        rows(article("a"), article("a"))


def rows(*articles):
    return RaceSource(split="train").from_rows(TfdsRows("x", {}, articles))


def test_rows_of_tensorflow_datasets_and_lone_surrogates():
    row = article("", example_id="high7.txt", article="a\ud800b")
    del row["id"]
    examples = rows(row)
    assert examples.ids == ["high7.txt-0", "high7.txt-1"]
    assert examples.contexts[0] == "a b"


def test_empty_option_is_read_as_the_original_does():
    row = article("a", options=[["", "b", "c", "d"], FOUR])
    examples = rows(row)
    assert examples.choices[0] == ["", "b", "c", "d"]
