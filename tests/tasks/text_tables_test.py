"""Reading tables, good and bad."""

import json

import pytest

from albert_tf.errors import DataError
from albert_tf.tasks.labels import find_labels
from albert_tf.tasks.text_tables import (
    LabelledTableSettings,
    TableSettings,
    TableSource,
)


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_table(path, **columns):
    return LabelledTableSettings(**columns).read_table(path)


def test_pairs(tmp_path):
    path = write(tmp_path, "a.csv", "\ufeffa;b;c\nx;y;1\n")
    columns = {"text_column": "a", "text_pair_column": "b", "label_column": ""}
    table = read_table(path, delimiter=";", **columns)
    assert (table.texts, table.text_pairs, table.labels) == (["x"], ["y"], None)
    assert (table.ids, table.lines) == (["0"], [2])


def test_a_second_text_that_is_not_read_is_said(tmp_path, caplog):
    path = write(tmp_path, "a.csv", "text,text_pair,label\nx,y,1\n")
    assert read_table(path, text_pair_column="text_pair").text_pairs == ["y"]
    assert not caplog.text and read_table(path).text_pairs is None
    assert "'text_pair' is not read; --text_pair_column=text_pair" in caplog.text


PAIRS = [
    {"id": "q1", "a": "x", "b": "y", "label": ["good", "long"]},
    {"id": "q2", "a": "z", "b": "", "label": []},
]


def test_lists_are_several_labels(tmp_path):
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, PAIRS)))
    table = read_table(path, text_column="a", text_pair_column="b", id_column="id")
    assert table.labels == [("good", "long"), ()]
    assert (table.ids, table.text_pairs) == (["q1", "q2"], ["y", ""])
    assert find_labels(table) == ("good", "long")
    other = table.select([1, 0])
    assert (other.texts, other.lines) == (["z", "x"], table.lines[::-1])
    assert other.where(0) == f"{path}: {table.unit} 2"


def test_a_separator_divides_labels(tmp_path):
    path = write(tmp_path, "a.csv", "text,label\na,x; y;\nb,\nc,z\n")
    table = read_table(path, label_separator=";")
    assert table.labels == [("x", "y"), (), ("z",)]


def test_rows_without_a_gold_label(tmp_path, caplog):
    rows = "text,label\na,neutral\nb,-\nc,entailment\n"
    table = read_table(write(tmp_path, "a.csv", rows))
    assert (table.labels, table.lines) == (["neutral", "entailment"], [2, 4])
    assert table.skipped == {"rows labelled '-'": 1}
    assert "rows labelled '-' 1" in caplog.text
    # In other data it is a label like any other, unless the user says so.
    rows = write(tmp_path, "b.csv", "text,label\na,+\nb,-\n")
    assert read_table(rows).labels == ["+", "-"]
    assert read_table(rows, skip_label="+ ").labels == ["-"]


BAD_ROWS = {
    "twice.csv": ("text,id\na,1\nb,2\nc,1\n", "line 4: the id '1' is .* line 2"),
    "noid.csv": ("text,id\na,1\nb,\n", "line 3: the id is empty"),
    "null.jsonl": (
        '{"text": "a", "id": 1}\n{"text": null, "id": 2}\n',
        "line 2: text: expected text, received nothing",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_named_or_left_out(tmp_path, name):
    content, message = BAD_ROWS[name]
    path = write(tmp_path, name, content)
    options = {"label_column": "", "id_column": "id"}
    with pytest.raises(DataError, match=message) as caught:
        read_table(path, **options)
    assert "--on_bad_input=skip" in str(caught.value)
    columns = TableSettings(id_column="id")
    source = TableSource(names=(name,), columns=columns, on_bad_input="skip")
    table = source.read(str(tmp_path))
    assert table.texts == ["a", "b"][: len(table)]
    assert sum(table.skipped.values()) == 1


def test_labels_of_odd_types(tmp_path):
    nested = '{"text": "a", "label": [["x"]]}\n{"text": "b", "label": ["y"]}\n'
    with pytest.raises(DataError, match="line 1: label: .* spans of characters"):
        read_table(write(tmp_path, "a.jsonl", nested))
    rows = '{"text": "a", "label": 1}\n{"text": 5, "label": null}'
    table = read_table(write(tmp_path, "c.jsonl", rows))
    assert (table.labels, table.texts) == (["1", ""], ["a", "5"])


@pytest.mark.parametrize(
    ("cell", "bracketed"),
    [("['x', 'y']", True), ("(0, 1)", True), ("[0 0 1]", True), ("0,0,1", False)],
)
def test_a_list_as_text_is_no_label(tmp_path, cell, bracketed):
    path = write(tmp_path, "a.csv", f'text,label\na,[x]\nb,"{cell}"\n')
    with pytest.raises(DataError, match="line 3: label: .* a list as text"):
        read_table(path)
    if bracketed:
        with pytest.raises(DataError, match="line 3: .* without brackets"):
            read_table(path, label_separator=",")
    else:
        assert len(read_table(path, label_separator=",").labels[1]) == 3


def test_not_a_number_is_nothing(tmp_path):
    rows = '{"text": "a", "label": NaN}\n{"text": "b", "label": 1}\n'
    assert read_table(write(tmp_path, "a.jsonl", rows)).labels == ["", "1"]
    with pytest.raises(DataError, match="line 1: text: .* received nothing"):
        read_table(write(tmp_path, "b.jsonl", '{"text": NaN, "label": 1}\n'))


def test_a_row_that_is_read_as_names_is_said(tmp_path, caplog):
    path = write(tmp_path, "a.csv", "a,p\nb,n\nc,p\n")
    read_table(path, text_column="0", label_column="1")
    assert "'p' is also a label; --noheader" in caplog.text
    caplog.set_level("INFO", logger="absl")
    read_table(path, text_column="0", label_column="")
    assert "line 1 is read as the names of columns, 'a, p'; --noheader" in caplog.text


def test_one_column_cannot_be_text_and_label(tmp_path):
    path = write(tmp_path, "a.csv", "text,label\na,b\n")
    with pytest.raises(DataError, match="one column for both, 'label'"):
        read_table(path, text_column="label")


def test_labels_that_look_alike_are_one(tmp_path):
    rows = "text,label\na, very\u200b  good\ufeff\nb,cafe\u0301\nc,\u00a0\n"
    path = write(tmp_path, "a.csv", rows)
    assert read_table(path).labels == ["very good", "caf\u00e9", ""]
