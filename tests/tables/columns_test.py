"""Reading columns of text and binary files, good and bad."""

import gzip
import json
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.columns import read_columns


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


ROWS = [
    {"id": 7, "words": ["a", "b"], "score": 3.0, "good": True, "extra": "x"},
    {"id": 8, "words": [], "score": None, "good": False, "extra": "y"},
]
EXPECTED = {
    "id": ["7", "8"],
    "words": [["a", "b"], []],
    "score": ["3.0", None],
    "good": ["true", "false"],
}


def content_of(kind):
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(ROWS), sink)
        return sink.getvalue().to_pybytes()
    if kind == "list":
        return json.dumps(ROWS, indent=1).encode()
    return ("\ufeff" + "\r\n\r\n".join(map(json.dumps, ROWS))).encode()


@pytest.mark.parametrize(
    ("name", "kind", "lines"),
    [
        ("a.jsonl", "lines", [1, 3]),
        ("a.json", "lines", [1, 3]),
        ("a.json", "list", [1, 2]),
        ("a.parquet", "parquet", [1, 2]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_typed_formats_give_text_and_lists(tmp_path, name, kind, lines, packed):
    content = content_of(kind)
    if packed:
        name, content = f"{name}.gz", gzip.compress(content)
    columns = read_columns(
        write(tmp_path, name, content), list(EXPECTED), optional=["extra", "none"]
    )
    assert columns.values == EXPECTED | {"extra": ["x", "y"]}
    assert columns.lines == lines
    assert columns.names == tuple(ROWS[0])
    assert columns.where(1).endswith(f"{columns.unit} {lines[1]}")


def test_a_field_may_be_absent_from_some_rows(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"a": 1}\n{"a": 2, "b": [[null, "x"], 1.5]}\n')
    assert read_columns(path).values == {
        "a": ["1", "2"],
        "b": [None, [[None, "x"], "1.5"]],
    }


def test_columns_by_negative_number_and_all(tmp_path):
    path = write(tmp_path, "a.tsv", "a\tb\tc\n1\t2\t3\n")
    assert read_columns(path, ["-1", "0"]).values == {"-1": ["3"], "0": ["1"]}
    assert read_columns(path).values == {"a": ["1"], "b": ["2"], "c": ["3"]}
    bare = read_columns(path, header=False)
    assert bare.values == {"0": ["a", "1"], "1": ["b", "2"], "2": ["c", "3"]}
    with pytest.raises(DataError, match="no column '-4'"):
        read_columns(path, ["-4"])


def test_short_and_long_rows(tmp_path):
    path = write(tmp_path, "a.tsv", "a\tb\n1\n2\t3\n4\t5\t6\n")
    with pytest.raises(DataError, match="line 2: expected 2 columns, received 1"):
        read_columns(path)
    with pytest.raises(DataError, match="line 4: expected 2 columns, received 3"):
        read_columns(path, short_rows="skip")
    filled = read_columns(path, short_rows="fill")
    assert filled.values == {"a": ["1", "2", "4"], "b": ["", "3", "5"]}
    assert sum(filled.skipped.values()) == 2
    skipped = read_columns(path, on_bad_input="skip")
    assert (skipped.values["b"], skipped.lines) == (["3"], [3])
    assert sum(skipped.skipped.values()) == 2


def test_carriage_returns(tmp_path):
    inside = write(tmp_path, "a.tsv", "a\tb\r\n1\tx\ry\r\n")
    assert read_columns(inside, quoting=False).values["b"] == ["x\ry"]
    old_mac = write(tmp_path, "b.tsv", "a\tb\r1\t2\r")
    assert read_columns(old_mac, quoting=False).values["b"] == ["2"]


def test_long_texts(tmp_path):
    text = "word " * 200_000
    path = write(tmp_path, "a.jsonl", json.dumps({"a": text}) + "\n")
    assert read_columns(path).values["a"] == [text]


BAD = {
    "broken.jsonl": (b'{"a": 1}\n{"a":\n', "line 2: not JSON"),
    "list.jsonl": (b'{"a": 1}\n3\n', "line 2: expected a JSON object, received int"),
    "items.json": (b'[{"a": 1}, []]', "row 2: expected a JSON object, received list"),
    "dict.jsonl": (b'{"a": {"b": 1}}\n{"a": 1}\n', "line 1: expected text, a number"),
    "half.jsonl": (b'{"a": "\\ud800"}\n{"a": 1}\n', "line 1: .*surrogates"),
    "deep.jsonl": (b'{"a": 1}\n{"a": ' + b"[" * 90_000, "line 2: not JSON"),
    "column.jsonl": (b'{"b": 1}\n', "no column 'a'; expected one of b$"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_named_or_left_out(tmp_path, name):
    content, message = BAD[name]
    path = write(tmp_path, name, content)
    with pytest.raises(DataError, match=message) as caught:
        read_columns(path, ["a"])
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    if "line" in message or "row" in message:
        left = read_columns(path, ["a"], on_bad_input="skip")
        assert left.values == {"a": ["1"]}
        assert sum(left.skipped.values()) == 1


UNREADABLE = {
    "nul.csv": (b"a,b\n1,\x002\n", "line 2: a NUL byte"),
    "wide.csv": ("a,b\n".encode("utf-16"), "UTF-16"),
    "latin.jsonl": (b'{"a": 1}\n{"a": "\xe9"}\n', "line 2: not UTF-8"),
    "cut.json": (b'[{"a": 1},', "not JSON"),
    "none.jsonl": (b"\n\n", "expected rows of JSON objects, received none"),
    "bad.parquet": (b"PAR1", "cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files(tmp_path, name):
    content, message = UNREADABLE[name]
    path = write(tmp_path, name, content)
    with pytest.raises(DataError, match=message):
        read_columns(path, ["a"], on_bad_input="skip")


def test_the_action_is_checked(tmp_path):
    with pytest.raises(UsageError, match="stop, skip, received 'error'"):
        read_columns(write(tmp_path, "a.csv", "a\n1\n"), on_bad_input="error")


def test_parquet_is_imported_when_needed():
    program = "import sys, albert_tf.tables.columns; print('pyarrow' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert out.stdout == b"False\n"
