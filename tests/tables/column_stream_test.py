"""Portions of a file are what is read at once, whatever their size and the file's."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from albert_tf.errors import DataError
from albert_tf.tables import text_stream
from albert_tf.tables.column_stream import ColumnStream
from albert_tf.tables.columns import read_columns

ROWS = [
    {"text": text, "id": str(i)}
    for i, text in enumerate(
        [
            "a film",
            'say "no"',
            "two\nlines",
            "ein Bär, größer",
            "tab\tin it",
            "",
            "x" * 50,
        ]
    )
]


def content_of(kind):
    if kind == "parquet":
        sink = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=2)
        return sink.getvalue()
    if kind == "jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
        return "\r\n\n".join(lines).encode("utf-8-sig")
    if kind == "json":
        return json.dumps(ROWS).encode()
    if kind == "plain.tsv":
        lines = [f"{row['text'].split()[:1]}\t{row['id']}" for row in ROWS]
        return ("\n\n".join(["text\tid", *lines]) + "\n").encode()
    out = io.StringIO()
    delimiter = "\t" if kind == "tsv" else ","
    writer = csv.DictWriter(out, ("text", "id"), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue().encode()


def joined(portions):
    values = {"text": [], "id": []}
    lines = []
    for portion in portions:
        for name, column in values.items():
            column += portion.values[name]
        lines += portion.lines
    return values, lines


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "kind", ["csv", "tsv", "plain.tsv", "jsonl", "json", "parquet"]
)
@pytest.mark.parametrize(("block", "rows"), [(4, 1), (7, 3), (1 << 20, 100)])
def test_portions_are_the_whole(tmp_path, monkeypatch, kind, packed, block, rows):
    content = content_of(kind)
    path = tmp_path / f"a.{kind}"
    if packed:
        path, content = tmp_path / f"a.{kind}.gz", gzip.compress(content)
    path.write_bytes(content)
    quoting = kind != "plain.tsv"
    whole = read_columns(path, ["text", "id"], quoting=quoting)
    monkeypatch.setattr(text_stream, "_BLOCK", block)
    stream = ColumnStream(path, ["text", "id"], quoting=quoting)
    portions = list(stream.portions(rows))
    assert [len(one) for one in portions[:-1]] == [rows] * (len(portions) - 1)
    values, lines = joined(portions)
    assert (values, lines) == (dict(whole.values), whole.lines)
    assert len(lines) == len(ROWS)
    assert stream.fraction() == 1.0
    assert {one.unit for one in portions} == {whole.unit}


class Block(bytes):
    """Bytes that count what is copied when they are appended to others."""

    copied = 0

    def __radd__(self, other):
        Block.copied += len(other) + len(self)
        return Block(bytes(other) + bytes(self))


def test_a_long_line_is_not_copied_again_for_every_block(monkeypatch):
    blocks = [b"[", *[b"1, "] * 500, b"2]\n3", b"4", b"\n", b"\n5\n"]
    stream = text_stream.TextStream("a.json")
    monkeypatch.setattr(stream, "_blocks", lambda: map(Block, blocks))
    assert list(stream.pieces()) == ["[" + "1, " * 500 + "2]\n", "34\n", "\n5\n"]
    assert Block.copied <= sum(map(len, blocks))


def test_carriage_returns(tmp_path, monkeypatch):
    monkeypatch.setattr(text_stream, "_BLOCK", 3)
    inside, old = tmp_path / "a.tsv", tmp_path / "b.tsv"
    inside.write_bytes(b"a\tb\r\n1\tx\ry\r\n2\tz\rz")
    old.write_bytes(b"a\tb\r1\t2\r")
    for path, expected in ((inside, ["x\ry", "z\rz"]), (old, ["2"])):
        stream = ColumnStream(path, ["b"], quoting=False)
        assert [v for one in stream.portions(1) for v in one.values["b"]] == expected
    stream = ColumnStream(old, ["b"])
    assert [one.values["b"] for one in stream.portions(9)] == [["2"]]


def test_memory_is_that_of_a_portion(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "word word\n" * 10_000)
    monkeypatch.setattr(text_stream, "_BLOCK", 1000)
    stream = ColumnStream(path, ["text"])
    next(stream.portions(100))
    assert 0 < stream.fraction() < 0.05


BAD = {
    "nul.csv": (b"a\n" + b"1\n" * 30 + b"\x002\n", "line 32: a NUL byte"),
    "wide.csv": ("a\n".encode("utf-16"), "UTF-16"),
    "latin.jsonl": (b'{"a": 1}\n' * 5 + b'{"a": "\xe9"}\n', "line 6: not UTF-8"),
    "broken.jsonl": (b'{"a": 1}\n' * 5 + b'{"a":\n', "line 6: not JSON"),
    "number.jsonl": (b'{"a": 1}\n' * 5 + b"3\n", "line 6: expected a JSON object"),
    "dict.jsonl": (b'{"a": 1}\n' * 5 + b'{"a": {}}\n', "line 6: expected text, a numb"),
    "cut.csv": (b"a,b\n" + b"1,2\n" * 5 + b"1\n", "line 7: expected 2 columns, receiv"),
    "quote.csv": (b"a\n" + b"1\n" * 5 + b'"x\n', "line 7: not CSV"),
    "cut.csv.gz": (gzip.compress(b"a\n" * 99)[:-9], "truncated gzip"),
    "none.csv": (b"a\n", "expected rows below the header, received none"),
    "none.jsonl": (b"\n", "expected rows of JSON objects, received none"),
    "empty.tsv": (b"", "received an empty file"),
    "bad.parquet": (b"PAR1", "cannot be read as Parquet"),
    "other.csv": (b"b\n1\n", "no column 'a'; expected one of b"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_named_when_it_comes(tmp_path, monkeypatch, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(text_stream, "_BLOCK", 5)
    portions = ColumnStream(tmp_path / name, ["a"]).portions(2)
    with pytest.raises(DataError, match=message):
        list(portions)
    if "line 6" in message:
        again = ColumnStream(tmp_path / name, ["a"]).portions(2)
        assert [next(again).values["a"] for _ in range(2)] == [["1", "1"]] * 2


@pytest.mark.parametrize("values", [[b"a", b"\xe9t\xe9"], [[b"a"], [b"b", b"\xe9"]]])
def test_parquet_text_that_is_not_utf8_is_named(tmp_path, values):
    path = tmp_path / "a.parquet"
    column = pa.array([values[0]] * 5 + [values[1], values[0]])
    # Nothing checks the bytes when they are taken for text.
    if isinstance(values[0], list):
        flat = pa.Array.from_buffers(pa.string(), 8, column.values.buffers())
        damaged = pa.ListArray.from_arrays(column.offsets, flat)
    else:
        damaged = pa.Array.from_buffers(pa.string(), 7, column.buffers())
    parquet.write_table(pa.table({"a": damaged}), path)
    portions = ColumnStream(path, ["a"]).portions(2)
    assert [len(next(portions)) for _ in range(2)] == [2, 2]
    message = "a.parquet: row 6: 'utf-8' codec can't decode byte 0xe9"
    with pytest.raises(DataError, match=message):
        next(portions)
    with pytest.raises(DataError, match=message):
        read_columns(path)
    kept = read_columns(path, on_bad_input="skip")
    assert kept.lines == [1, 2, 3, 4, 5, 7]


def test_a_missing_file_and_a_folder(tmp_path):
    for name in ("absent.csv", "absent.parquet"):
        with pytest.raises(DataError, match="cannot be read: No such file"):
            next(ColumnStream(tmp_path / name, ["a"]).portions(2))
    with pytest.raises(DataError, match="expected a file, found a folder"):
        next(ColumnStream(tmp_path, ["a"]).portions(2))
