"""Reading SWAG, CODAH and own tables of questions with choices."""

import dataclasses
import json

import pytest

from albert_tf.errors import DataError
from albert_tf.tasks.choice_files import (
    ChoiceTableSettings,
    codah_source,
    read_choice_table,
    swag_source,
)

# The header of the released files.
HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source"
ENDINGS = ",ending0,ending1,ending2,ending3"


def test_swag(tmp_path):
    row = '0,v,7,"He, who","He, who",said,gold,"a ""b""",b,c,d'
    (tmp_path / "SWAG").mkdir()
    path = tmp_path / "SWAG" / "val.csv"
    path.write_text(f"{HEADER}{ENDINGS},label\r\n{row},3\r\n", "utf-8")
    (tmp_path / "SWAG" / "test.csv").write_text(f"{HEADER}{ENDINGS}\n{row}\n", "utf-8")
    dev = swag_source("dev").read(str(tmp_path))
    assert (dev.contexts, dev.questions) == (["He, who"], ["said"])
    assert dev.choices == [['a "b"', "b", "c", "d"]]
    assert (dev.labels, dev.ids) == ([3], ["0"])
    assert swag_source("test").read(str(tmp_path / "SWAG")).labels is None
    with pytest.raises(DataError, match=r"no file train\.csv"):
        swag_source("train").read(str(tmp_path))
    path.write_text(f"{HEADER}{ENDINGS}\n{row}\n", "utf-8")
    with pytest.raises(DataError, match="no column 'label'"):
        swag_source("dev").read(str(tmp_path))


CODAH = 'o\tHe said "hi\ta\t"b"\tc\td\t3\n\tNo category\ta\tb\tc\td\t0\n'


def test_codah(tmp_path):
    for fold, text in {"fold_0": CODAH, "fold_1": CODAH[:29]}.items():
        (tmp_path / "cv_split" / fold).mkdir(parents=True)
        (tmp_path / "cv_split" / fold / "dev.tsv").write_text(text, "utf-8")
    dev = codah_source("dev").read(str(tmp_path))
    assert dev.contexts == ['He said "hi', "No category"]
    assert dev.choices[0] == ["a", '"b"', "c", "d"]
    assert (dev.labels, dev.questions) == ([3, 0], ["", ""])
    other = tmp_path / "cv_split" / "fold_1"
    (other / "dev.tsv").write_text(CODAH.splitlines()[1], "utf-8")
    assert codah_source("dev").read(str(other)).labels == [0]


@pytest.mark.parametrize("name", ["swag", "codah"])
def test_an_ending_that_is_missing(tmp_path, name, caplog):
    """Tables of one's own may have questions with fewer choices; these may not."""
    if name == "swag":
        row = "{},v,7,He,He,said,gold,a,b,c,{},0\n"
        text = f"{HEADER}{ENDINGS},label\n{row.format(0, '')}{row.format(1, 'd')}"
        source, file, line = swag_source, "train.csv", 2
    else:
        text = "o\tHe\ta\tb\tc\t\t0\n" + CODAH
        source, file, line = codah_source, "train.tsv", 1
    (tmp_path / file).write_text(text, "utf-8")
    message = rf"{file}: line {line}: expected 4 endings, received 3 \(--on_bad_input"
    with pytest.raises(DataError, match=message) as caught:
        source("train").read(str(tmp_path))
    assert "\n" not in str(caught.value)
    skipping = dataclasses.replace(source("train"), on_bad_input="skip")
    found = skipping.read(str(tmp_path))
    assert {len(choices) for choices in found.choices} == {4}
    assert found.skipped == {"questions without four endings": 1}
    assert f"{file}: questions without four endings 1" in caplog.text
    (tmp_path / file).write_text("".join(text.splitlines(True)[:line]), "utf-8")
    with pytest.raises(DataError, match=f"{file}: no question has 4 endings"):
        skipping.read(str(tmp_path))


def test_codah_without_split(tmp_path):
    (tmp_path / "full_data.tsv").write_text(CODAH, "utf-8")
    with pytest.raises(DataError, match=r"full_data\.tsv has no split; name one of"):
        codah_source("train").read(str(tmp_path))


def test_csv_with_fewer_choices(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "context,question,choice1,choice2,choice3,label\np,q,a,b,c,C\np,q,a,b,,1\n"
    )
    settings = ChoiceTableSettings(question_column="question")
    examples = read_choice_table(str(path), settings)
    assert examples.choices == [["a", "b", "c"], ["a", "b"]]
    assert examples.labels == [2, 1]
    assert examples.questions == ["q", "q"]


def jsonl(tmp_path, *rows):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


GOOD = {"context": "c", "choices": ["a", "b"], "label": 0, "other": {"x": 1}}


def test_json_lines(tmp_path):
    path = jsonl(tmp_path, GOOD | {"name": "n1"}, GOOD | {"label": "B", "name": "n2"})
    examples = read_choice_table(path, ChoiceTableSettings(id_column="name"))
    assert (examples.ids, examples.labels) == (["n1", "n2"], [0, 1])
    assert examples.select([1]).where == [f"{path}: line 2"]


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"context": ["c"], "choices": [["a", "b"]], "label": [1]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert read_choice_table(path, ChoiceTableSettings()).labels == [1]


def test_unlabelled(tmp_path):
    bare = {"context": "c", "choices": ["a", "b"]}
    settings = ChoiceTableSettings()
    for rows in ([bare], [bare | {"label": -1}], [bare | {"label": None}]):
        path = jsonl(tmp_path, *rows)
        assert read_choice_table(path, settings, labelled=False).labels is None
        with pytest.raises(DataError, match="label|number of a choice"):
            read_choice_table(path, settings)
    path = jsonl(tmp_path, GOOD, bare)
    with pytest.raises(DataError, match="line 2: expected the index of a choice"):
        read_choice_table(path, settings, labelled=False)


BAD = {
    "one choice": ({"choices": ["a"]}, "expected at least 2 choices, received 1"),
    "empty": ({"choices": ["a", " "]}, r"choice 1 \(from 0\) is empty"),
    "null": ({"choices": ["a", None, "c"]}, r"choice 1 \(from 0\) is missing"),
    "text": ({"choices": "ab"}, "expected a list of choices, received 'ab'"),
    "missing": ({"choices": None}, "expected a list of choices, received None"),
    "label": ({"label": 2}, r"0 to 1 \(or A to B\), received '2'"),
    "fraction": ({"label": 0.5}, "received '0.5'"),
    "true": ({"label": True}, "received 'true'"),
    "context": ({"context": ["c"]}, r"context: expected text, received \['c'\]"),
    "no context": ({"context": None}, "context: expected text, received null"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_row_is_named(tmp_path, name, caplog):
    changes, message = BAD[name]
    path = jsonl(tmp_path, GOOD, GOOD | changes)
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*" + message) as e:
        read_choice_table(path, ChoiceTableSettings())
    assert "\n" not in str(e.value)
    examples = read_choice_table(path, ChoiceTableSettings(), on_bad_input="skip")
    assert len(examples) == 1 and sum(examples.skipped.values()) == 1
    (reason,) = examples.skipped
    assert f"{path}: {reason} 1" in caplog.text


def test_ids_twice(tmp_path):
    path = jsonl(tmp_path, GOOD | {"id": "x"}, GOOD | {"id": "x"})
    with pytest.raises(DataError, match=r"line 2: the id 'x' is already that of .*1"):
        read_choice_table(path, ChoiceTableSettings(id_column="id"))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("context,a,b,label", "no columns of choices"),
        ("context,choice0,choice2,label", "without a gap, received choice0, choice2"),
        ("text,choice0,choice1,label", "no column 'context'"),
    ],
)
def test_columns_that_are_not_there(tmp_path, header, message):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\nx,a,b,0\n")
    with pytest.raises(DataError, match=message):
        read_choice_table(str(path), ChoiceTableSettings())
