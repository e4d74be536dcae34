"""Reading RACE, SWAG, CODAH and own tables of questions with choices."""

import dataclasses
import json

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.choice_files import (
    ChoiceSource,
    ChoiceTableSettings,
    RaceSource,
    codah_source,
    swag_source,
)

SETTINGS = ChoiceTableSettings()
# The header of the released files.
HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source"
ENDINGS = ",ending0,ending1,ending2,ending3"


def read_choice_table(path, settings, labelled=True, **options):
    source = ChoiceSource(columns=settings, labelled=labelled, **options)
    return source.read_file(path)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="")
    return str(path)


def test_swag(tmp_path):
    row = '0,v,7,"He, who","He, who",said,gold,"a ""b""",b,c,d'
    path = tmp_path / "SWAG" / "val.csv"
    write(path, f"{HEADER}{ENDINGS},label\r\n{row},3\r\n")
    write(tmp_path / "SWAG" / "test.csv", f"{HEADER}{ENDINGS}\n{row}\n")
    dev = swag_source("dev").read(str(tmp_path))
    assert (dev.contexts, dev.questions) == (["He, who"], ["said"])
    assert dev.choices == [['a "b"', "b", "c", "d"]]
    assert (dev.labels, dev.ids) == ([3], ["0"])
    assert swag_source("test").read(str(tmp_path / "SWAG")).labels is None
    with pytest.raises(DataError, match=r"no file train\.csv"):
        swag_source("train").read(str(tmp_path))
    write(path, f"{HEADER}{ENDINGS}\n{row}\n")
    with pytest.raises(DataError, match="no column 'label'"):
        swag_source("dev").read(str(tmp_path))


CODAH = 'o\tHe said "hi\ta\t"b"\tc\td\t3\n\tNo category\ta\tb\tc\td\t0\n'


def test_codah(tmp_path):
    write(tmp_path / "cv_split" / "fold_0" / "dev.tsv", CODAH)
    write(tmp_path / "cv_split" / "fold_1" / "dev.tsv", CODAH.splitlines()[1])
    dev = codah_source("dev").read(str(tmp_path))
    assert dev.contexts == ['He said "hi', "No category"]
    assert dev.choices[0] == ["a", '"b"', "c", "d"]
    assert (dev.labels, dev.questions) == ([3, 0], ["", ""])
    other = codah_source("dev").read(str(tmp_path / "cv_split" / "fold_1"))
    assert other.labels == [0]
    with pytest.raises(DataError, match="name one of the folders fold_0"):
        codah_source("train").read(str(tmp_path))


SWAG_ROW = "{},v,7,He,He,said,gold,a,b,c,{},0\n"
SWAG_ROWS = SWAG_ROW.format(0, "") + SWAG_ROW.format(1, "d")


@pytest.mark.parametrize(
    ("source", "text", "line"),
    [
        (swag_source("train"), f"{HEADER}{ENDINGS},label\n{SWAG_ROWS}", 2),
        (codah_source("train"), "o\tHe\ta\tb\tc\t\t0\n" + CODAH, 1),
    ],
    ids=["swag", "codah"],
)
def test_an_ending_that_is_missing(tmp_path, source, text, line):
    """Tables of one's own may have questions with fewer choices; these may not."""
    (file,) = source.names
    path = write(tmp_path / file, text)
    message = rf"{file}: line {line}: expected 4 endings, received 3 \(--on_bad_input"
    with pytest.raises(DataError, match=message) as caught:
        source.read(str(tmp_path))
    assert "\n" not in str(caught.value)
    skipping = dataclasses.replace(source, on_bad_input="skip")
    found = skipping.read_file(path)
    assert {len(choices) for choices in found.choices} == {4}
    assert sum(found.skipped.values()) == 1
    write(tmp_path / file, "".join(text.splitlines(True)[:line]))
    with pytest.raises(DataError, match=f"{file}: no question can be used"):
        skipping.read_file(path)


def test_csv_with_fewer_choices(tmp_path, caplog):
    header = "context,question,choice1,choice2,choice3,label\n"
    path = write(tmp_path / "a.csv", f"{header}p,q,a,b,c,C\np,q,a,b,,1\n")
    examples = read_choice_table(path, ChoiceTableSettings(question_column="question"))
    assert examples.choices == [["a", "b", "c"], ["a", "b"]]
    assert examples.labels == [2, 1]
    assert examples.questions == ["q", "q"] and not caplog.text
    assert read_choice_table(path, ChoiceTableSettings()).questions == ["", ""]
    assert "'question' is not read; --question_column=question" in caplog.text


def jsonl(tmp_path, *rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return write(tmp_path / "a.jsonl", text)


GOOD = {"context": "c", "choices": ["a", "b"], "label": 0, "other": {"x": 1}}


def test_json_lines(tmp_path):
    path = jsonl(tmp_path, GOOD | {"name": "n1"}, GOOD | {"label": "B", "name": "n2"})
    examples = read_choice_table(path, ChoiceTableSettings(id_column="name"))
    assert (examples.ids, examples.labels) == (["n1", "n2"], [0, 1])
    assert examples.select([1]).where == [f"{path}: line 2"]


def test_later_rows_have_more_choices(tmp_path):
    """In the same portion; in a later one they are not read, and this is said."""
    two = {"context": "c", "choice_01": "a", "choice_02": "b", "label": 0}
    path = jsonl(tmp_path, two, two | {"choice_03": "d"})
    named = ChoiceTableSettings(choice_columns=("choice_01", "choice_02", "choice_03"))
    for settings in (SETTINGS, named):
        source = ChoiceSource(columns=settings).open(path)
        expected = [["a", "b"], ["a", "b", "d"]]
        assert source.whole().choices == next(source.portions(2)).choices == expected
        portions = source.portions(1)
        assert next(portions).choices == [["a", "b"]]
        with pytest.raises(DataError, match="line 2: the column 'choice_03' begins"):
            next(portions)


def test_unlabelled(tmp_path):
    bare = {"context": "c", "choices": ["a", "b"]}
    for rows in ([bare], [bare | {"label": -1}], [bare | {"label": None}]):
        path = jsonl(tmp_path, *rows)
        assert read_choice_table(path, SETTINGS, labelled=False).labels is None
        with pytest.raises(DataError, match="label|number of a choice"):
            read_choice_table(path, SETTINGS)
    path = jsonl(tmp_path, bare | {"label": 1.0})
    assert read_choice_table(path, SETTINGS).labels == [1]
    path = jsonl(tmp_path, GOOD, bare)
    with pytest.raises(DataError, match="line 2: expected the index of a choice"):
        read_choice_table(path, SETTINGS, labelled=False)


BAD = {
    "one choice": ({"choices": ["a"]}, "expected at least 2 choices, received 1"),
    "empty": ({"choices": ["a", " "]}, r"choice 1 \(from 0\) is empty"),
    "null": ({"choices": ["a", None, "c"]}, r"choice 1 \(from 0\): expected text, rec"),
    "missing": ({"choices": None}, "choices: expected a list, received nothing"),
    "label": ({"label": 2}, r"0 to 1 \(or A to B\), received '2'"),
    "fraction": ({"label": 0.5}, "received '0.5'"),
    "context": ({"context": ["c"]}, r"context: expected text, received \['c'\]"),
    "id twice": ({"id": "0"}, "the id '0' is already used in .*line 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_row_is_named(tmp_path, name, caplog):
    changes, message = BAD[name]
    path = jsonl(tmp_path, GOOD | {"id": "0"}, GOOD | {"id": "1"} | changes)
    settings = ChoiceTableSettings(id_column="id")
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*" + message) as e:
        read_choice_table(path, settings)
    assert "\n" not in str(e.value)
    examples = read_choice_table(path, settings, on_bad_input="skip")
    assert len(examples) == 1 and sum(examples.skipped.values()) == 1
    assert f"{path}: {next(iter(examples.skipped))} 1" in caplog.text


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("context,a,b,label", "no columns of choices"),
        ("context,choice0,choice2,label", "without a gap, received choice0, choice2"),
        ("text,choice0,choice1,label", "no column 'context'"),
    ],
)
def test_columns_that_are_not_there(tmp_path, header, message):
    path = write(tmp_path / "a.csv", f"{header}\nx,a,b,0\n")
    with pytest.raises(DataError, match=message):
        read_choice_table(path, SETTINGS)


def article(name, **changes):
    return {
        "article": "Tom has a Café .",
        "questions": ["What has Tom ?", "Tom has a _ . A _ !"],
        "options": [["a cat", "a dog", "a cafe", "no"], ["Red", "Hat", "Owl", "x_y"]],
        "answers": ["C", "A"],
        "id": name,
    } | changes


def write_race(tmp_path, split="train"):
    for level, number in (("middle", 10), ("middle", 2), ("high", 1)):
        text = json.dumps(article(f"{level}{number}.txt"))
        write(tmp_path / split / level / f"{number}.txt", text)
    (tmp_path / split / "high" / "._1.txt").write_bytes(b"\xff")
    return str(tmp_path)


@pytest.mark.parametrize("parent", [True, False])
def test_folder_of_race_or_its_parent(tmp_path, parent):
    folder = write_race(tmp_path / "RACE")
    examples = RaceSource(split="train").read(str(tmp_path) if parent else folder)
    assert examples.ids[:3] == ["middle10.txt-0", "middle10.txt-1", "middle2.txt-0"]
    assert examples.groups == ["middle"] * 4 + ["high"] * 2
    assert examples.labels == [2, 0] * 3
    assert examples.choices[1] == ["Red", "Hat", "Owl", "x_y"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_joined_file_is_read_once(tmp_path, end):
    single = RaceSource(split="dev").read(write_race(tmp_path, "dev"))
    for level, numbers in {"middle": (10, 2), "high": (1,)}.items():
        articles = [json.dumps(article(f"{level}{i}.txt")) + end for i in numbers]
        write(tmp_path / "dev" / level / "all.txt", "".join(articles))
    joined = RaceSource(split="dev").read(str(tmp_path))
    for name in ("ids", "contexts", "questions", "choices", "labels", "groups"):
        assert getattr(joined, name) == getattr(single, name)
    assert "all.txt: line " in joined.where[0]


def test_test_data_without_answers(tmp_path):
    """There may be one level, and all answers or none."""
    bare = article("a")
    del bare["answers"]
    for split in ("test", "train"):
        write(tmp_path / split / "high" / "1.txt", json.dumps(bare))
    found = RaceSource(split="test").read(str(tmp_path))
    assert found.labels is None and found.groups == ["high", "high"]
    with pytest.raises(DataError, match="answers: expected a list, received nothing"):
        RaceSource(split="train").read(str(tmp_path))
    write(tmp_path / "test" / "high" / "2.txt", json.dumps(article("b")))
    with pytest.raises(DataError, match="1.txt: line 1: question 0 .* no answer"):
        RaceSource(split="test").read(str(tmp_path))


FOUR = ["a", "b", "c", "d"]
BAD_ARTICLES = {
    "three options": ({"options": [FOUR, FOUR[:3]]}, r"1 \(from 0\): expected 4 .*3"),
    "answer E": ({"answers": ["A", "E"]}, "must be one of A, B, C, D, received 'E'"),
    "fewer answers": ({"answers": ["A"]}, "as questions, 2, received 2 and 1"),
    "null": ({"options": [FOUR, [None, *"bcd"]]}, r"1 .*: options\[0\]: expected text"),
    "id": ({"id": 7}, "id: expected text, received 7"),
    "id twice": ({"id": "a"}, "the id 'a' is already used in .*1.txt: line 1"),
}


@pytest.mark.parametrize("name", BAD_ARTICLES)
def test_bad_article_is_named(tmp_path, name, caplog):
    changes, message = BAD_ARTICLES[name]
    write(tmp_path / "train" / "high" / "1.txt", json.dumps(article("a")))
    write(tmp_path / "train" / "high" / "2.txt", json.dumps(article("b", **changes)))
    with pytest.raises(DataError, match=r"2\.txt: line 1: .*" + message) as e:
        RaceSource(split="train").read(str(tmp_path))
    assert "\n" not in str(e.value)
    examples = RaceSource(split="train", on_bad_input="skip").read(str(tmp_path))
    assert examples.ids == ["a-0", "a-1"]
    assert examples.skipped == {"malformed articles": 1}
    assert "malformed articles 1" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "received an empty file"),
        ('\n\n{"article": "x', "all.txt: line 3: not JSON"),
        ("[1]", r"expected an object, received \[1\]"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
    ids=["empty", "cut", "list", "deep"],
)
def test_bad_file_of_race(tmp_path, data, message):
    write(tmp_path / "dev" / "high" / "all.txt", data)
    with pytest.raises(DataError, match=message):
        RaceSource(split="dev").read(str(tmp_path))


def test_missing_folders(tmp_path):
    source = RaceSource(split="train")
    with pytest.raises(UsageError, match="data_dir"):
        source.read()
    for folder, message in (
        ("", "no folder train or RACE/train"),
        ("train", "folders middle and high"),
        ("train/high", "expected .txt files, found none"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        with pytest.raises(DataError, match=message):
            source.read(str(tmp_path))


def test_rows_of_tensorflow_datasets():
    """A lone surrogate and an empty option are read as the original does."""
    options = [["", "b", "c", "d"], FOUR]
    row = article("", example_id="high\ud800.txt", article="a\ud800b", options=options)
    del row["id"]
    examples = RaceSource(split="train").from_rows(TfdsRows("x", {}, [row]))
    assert examples.ids == ["high .txt-0", "high .txt-1"]
    assert examples.contexts[0] == "a b" and examples.choices == options
    assert RaceSource(split="dev").set_split("race", "dev") == "dev"
