"""Files of rows, good and bad: portions of any size are what is read at once."""

import csv
import gzip
import io
import json
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
from pyarrow import parquet

from albert_tf.errors import DataError, UsageError
from albert_tf.tables import text_stream
from albert_tf.tables.columns import BLANK, BadRow, BadRows
from albert_tf.tables.reader import ColumnReader, read_columns


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


TEXTS = ["a film", 'say "no"', "two\nlines", "ein Bär, größer", "tab\tin", "", "x" * 50]
ROWS = [{"text": text, "id": str(i)} for i, text in enumerate(TEXTS)]
TYPED = [
    {"id": 7, "words": ["a", "b"], "score": 3.0, "good": True, "extra": "x"},
    {"id": 8, "words": [], "score": None, "good": False, "extra": "y"},
]
PLAIN = {
    "id": ["7", "8"],
    "words": [["a", "b"], []],
    "score": ["3.0", None],
    "good": ["true", "false"],
}


def content_of(kind, rows):
    if kind == "parquet":
        sink = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
        return sink.getvalue()
    if kind == "jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        return "\r\n\n".join(lines).encode("utf-8-sig")
    if kind == "json":
        return json.dumps(rows, indent=1).encode()
    if kind == "plain.tsv":
        lines = [f"{row['text'].split()[:1]}\t{row['id']}" for row in rows]
        return ("\n\n".join(["text\tid", *lines]) + "\n").encode()
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], delimiter="\t" if kind == "tsv" else ",")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "kind", ["csv", "tsv", "plain.tsv", "jsonl", "json", "parquet"]
)
@pytest.mark.parametrize(("block", "rows"), [(4, 1), (7, 3), (1 << 20, 100)])
def test_portions_are_the_whole(tmp_path, monkeypatch, kind, packed, block, rows):
    content = content_of(kind, ROWS)
    if packed:
        kind, content = f"{kind}.gz", gzip.compress(content)
    path = write(tmp_path, f"a.{kind}", content)
    quoting = "plain" not in kind
    whole = read_columns(path, ["text", "id"], quoting=quoting)
    if quoting:
        assert whole.values["text"] == TEXTS
    monkeypatch.setattr(text_stream, "_BLOCK", block)
    reader = ColumnReader(path, ["text", "id"], quoting=quoting)
    portions = list(reader.portions(rows))
    assert [len(one) for one in portions[:-1]] == [rows] * (len(portions) - 1)
    for name, values in whole.values.items():
        assert [value for one in portions for value in one.values[name]] == values
    assert [line for one in portions for line in one.lines] == whole.lines
    assert len(whole) == len(ROWS)
    assert reader.fraction() == 1.0
    assert {one.unit for one in portions} == {whole.unit}


@pytest.mark.parametrize("name", ["a.jsonl", "jsonl.json", "a.json", "a.parquet"])
def test_typed_formats_give_text_and_lists(tmp_path, name):
    kind = "jsonl" if "jsonl" in name else name[2:]
    lines = [1, 3] if kind == "jsonl" else [1, 2]
    path = write(tmp_path, name, content_of(kind, TYPED))
    columns = read_columns(path, list(PLAIN), optional=["extra", "none"])
    assert columns.values == PLAIN | {"extra": ["x", "y"]}
    assert columns.lines == lines
    assert columns.names == tuple(TYPED[0])
    assert columns.where(1) == f"{path}: {columns.unit} {lines[1]}"


def test_a_field_may_be_absent_from_some_rows(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"a": 1}\n{"a": 2, "b": [[null, "x"], 1.5]}\n')
    values = {"a": ["1", "2"], "b": [None, [[None, "x"], "1.5"]]}
    assert read_columns(path).values == values


def test_columns_by_negative_number_and_all(tmp_path):
    path = write(tmp_path, "a.tsv", "a\tb\tc\n1\t2\t3\n")
    assert read_columns(path, ["-1", "0"]).values == {"-1": ["3"], "0": ["1"]}
    assert read_columns(path).values == {"a": ["1"], "b": ["2"], "c": ["3"]}
    bare = read_columns(path, header=False)
    assert bare.values == {"0": ["a", "1"], "1": ["b", "2"], "2": ["c", "3"]}
    with pytest.raises(DataError, match="no column '-4'"):
        read_columns(path, ["-4"])
    with pytest.raises(DataError, match="no column '3'; expected a number from 0 to 2"):
        read_columns(path, ["3"], header=False)


def test_a_folder_of_classes(tmp_path):
    for name, text in (("neg/1.txt", "bad"), ("pos/2.txt", "good"), (".git/x", "no")):
        (tmp_path / name).parent.mkdir()
        write(tmp_path, name, text)
    reader = ColumnReader(tmp_path, ["label", "text"])
    for whole in (read_columns(tmp_path, ["label", "text"]), *reader.portions(9)):
        assert whole.values == {"label": ["neg", "pos"], "text": ["bad", "good"]}
        assert whole.where(1) == f"{tmp_path}: file pos/2.txt"
    with pytest.raises(DataError, match="a folder of texts for each class, received n"):
        read_columns(tmp_path / "pos")


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
    portions = ColumnReader(path, ["b"], bad=BadRows("skip")).portions(1)
    assert [one.values["b"] for one in portions] == [["3"]]


class Block(bytes):
    """Bytes that count what is copied when they are appended to others."""

    copied = 0

    def __radd__(self, other):
        Block.copied += len(other) + len(self)
        return Block(bytes(other) + bytes(self))


def test_a_long_line_is_not_copied_again_for_every_block(monkeypatch):
    blocks = [b"[", *[b"1, "] * 500, b"2]\n3", b"4", b"\n", b"\n5\n"]
    stream = text_stream.TextStream("a.json")
    monkeypatch.setattr(stream, "blocks", lambda: map(Block, blocks))
    assert list(stream.pieces()) == ["[" + "1, " * 500 + "2]\n", "34\n", "\n5\n"]
    assert Block.copied <= sum(map(len, blocks))


def test_carriage_returns(tmp_path, monkeypatch):
    monkeypatch.setattr(text_stream, "_BLOCK", 3)
    inside = write(tmp_path, "a.tsv", b"a\tb\r\n1\tx\ry\r\n2\tz\rz")
    old = write(tmp_path, "b.tsv", b"a\tb\r1\t2\r")
    for path, expected in ((inside, ["x\ry", "z\rz"]), (old, ["2"])):
        assert read_columns(path, ["b"], quoting=False).values["b"] == expected
    assert read_columns(old, ["b"]).values["b"] == ["2"]


def test_long_texts(tmp_path):
    text = "word " * 200_000
    for kind in ("csv", "jsonl"):
        path = write(tmp_path, f"a.{kind}", content_of(kind, [{"a": text}]))
        assert read_columns(path).values["a"] == [text]


def test_memory_is_that_of_a_portion(tmp_path, monkeypatch):
    path = write(tmp_path, "a.csv", "text\n" + "word word\n" * 10_000)
    monkeypatch.setattr(text_stream, "_BLOCK", 1000)
    reader = ColumnReader(path, ["text"])
    next(reader.portions(100))
    assert 0 < reader.fraction() < 0.05


# Rows that can be left out, after five good ones.
BAD_ROWS = {
    "broken.jsonl": (b'{"a":\n', "line 6: not JSON"),
    "number.jsonl": (b"3\n", "line 6: expected a JSON object, received int"),
    "dict.jsonl": (b'{"a": {"b": 1}}\n', "line 6: expected text, a number"),
    "nul.jsonl": (b'{"a": "\\u0000"}\n', "line 6: .*a NUL character"),
    "latin.jsonl": (b'{"a": "\xe9"}\n', "line 6: not UTF-8"),
    "latin.csv": (b"\xe9\n", "line 7: not UTF-8"),
    "quoted.csv": (b'"1\n\xe9\n2"\n', "line 8: not UTF-8"),
    "nul.csv": (b"\x002\n", "line 7: a NUL byte"),
    "deep.jsonl": (b'{"a": ' + b"[" * 90_000, "line 6: not JSON"),
    "items.json": (b", []]", "row 6: expected a JSON object, received list"),
    "long.csv": (b"1,2\n", "line 7: expected 1 columns, received 2"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_named_or_left_out(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_stream, "_BLOCK", 5)
    bad, message = BAD_ROWS[name]
    good = {"jsonl": b'{"a": 1}\n' * 5, "csv": b"a\n" + b"1\n" * 5}
    good["json"] = b"[" + b", ".join([b'{"a": 1}'] * 5)
    path = write(tmp_path, name, good[name.partition(".")[2]] + bad)
    portions = ColumnReader(path, ["a"]).portions(2)
    assert [next(portions).values["a"] for _ in range(2)] == [["1", "1"]] * 2
    for read in (lambda: next(portions), lambda: read_columns(path, ["a"])):
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    left = read_columns(path, ["a"], on_bad_input="skip")
    assert left.values == {"a": ["1"] * 5}
    kept = next(ColumnReader(path, ["a"], bad=BadRows(BLANK)).portions()).values["a"]
    assert [isinstance(value, BadRow) for value in kept] == [False] * 5 + [True]
    left_out = Counter(left.skipped) - Counter({"rows of several lines": 1})
    assert sum(left_out.values()) == 1


def test_a_header_below_the_first_line_is_no_row(tmp_path):
    path = write(tmp_path, "a.csv", "a,b\n1,2\na,b\n3,4\n")
    with pytest.raises(DataError, match="line 3: repeats the header"):
        read_columns(path)
    assert read_columns(path, on_bad_input="skip").values["a"] == ["1", "3"]
    # A text may be the name of its only column.
    assert read_columns(write(tmp_path, "b.csv", "a\na\n")).values["a"] == ["a"]


SEVERAL = {"rows of several lines": 1}
CODE = "f(a,b)\ng(c,d)\nh(e,f)"
HALF = b'{"a": "x\\ud83dy"}\n{"a": ["\\udc00"]}\n'
# What was not left out, but what somebody might want to know.
SEVERAL = {"rows of several lines": 1}
COUNTED = {
    "blank.csv": (b"a\n1\n\n\n2\n", ["1", "2"], {"blank lines": 2}),
    "blank.jsonl": (b'{"a": 1}\n\n{"a": 2}\n', ["1", "2"], {"blank lines": 1}),
    "lines.csv": (b'a,b\n"x, y\nz",\n', ["x, y\nz"], SEVERAL),
    # Quotes enclose delimiters here, so they are not ordinary characters.
    "quoted.csv": (b'a,b\n"x,y",\n"x,y\nz",1\n', ["x,y", "x,y\nz"], SEVERAL),
    # The first and the last line of such a cell have other cells in their rows.
    "code.csv": (f'a,b\n"{CODE}",p\n'.encode(), [CODE], SEVERAL),
    "half.jsonl": (HALF, ["x y", [" "]], {"surrogates_replaced": 2}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_read_in_another_way_is_counted(tmp_path, name):
    content, values, counts = COUNTED[name]
    table = read_columns(write(tmp_path, name, content), ["a"])
    assert (table.values["a"], table.skipped) == (values, counts)
    # Each portion has its own, in every pass.
    reader = ColumnReader(tmp_path / name, ["a"])
    for _ in range(2):
        skipped = [Counter(one.skipped) for one in reader.portions(1)]
        assert sum(skipped, Counter()) == counts


def test_a_line_that_is_too_long_needs_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.tables.reader.MAX_ROW_BYTES", 5000)
    monkeypatch.setattr(text_stream, "_BLOCK", 1000)
    lines = b"a\n1\n" + b"x" * 20_000 + b"\n2\n"
    path = write(tmp_path, "a.csv.gz", gzip.compress(lines))
    with pytest.raises(DataError, match="line 3: a line of more than 5000 bytes"):
        read_columns(path)
    left = read_columns(path, on_bad_input="skip")
    assert (left.values["a"], left.skipped) == (["1", "2"], {"lines_too_long": 1})


UNREADABLE = {
    "zeros.csv": (bytes(99), "line 1: a NUL byte"),
    "wide.csv": ("a\n".encode("utf-16"), "UTF-16"),
    "header.csv": (b"a,\xe9\n1,2\n", "line 1: not UTF-8"),
    "swallowed.csv": (b'a,y\n1,2\n"3,4\n5,6\n7",8\n', "lines 3 to 5: .*--noquoting"),
    "first.tsv": (b'"a\tb\n1\t2\n3"\t4\n', "lines 1 to 3: one row"),
    "quote.csv": (b"a\n" + b"1\n" * 5 + b'"x\n', "line 7: not CSV: unexpected end"),
    "cut.csv.gz": (gzip.compress(b"a\n" * 99, mtime=0)[:-9], "truncated gzip"),
    "cut.json": (b'[{"a": 1},', "not JSON"),
    "none.csv": (b"a\n", "expected rows below the header, received none"),
    "none.jsonl": (b"\n\n", "expected rows of JSON objects, received none"),
    "all.jsonl": (b"3\n3\n", "none .rows that are not objects 2; .* one: .*: line 1: "),
    "empty.tsv": (b"", "received an empty file"),
    "bad.parquet": (b"PAR1", "cannot be read as Parquet"),
    "near.csv": (b"as,label\n1,2\n", "did you mean 'as'"),
    "tabs.csv": (b"text\tlabel\n1\t2\n", "one of text\tlabel .--delimiter sets anoth"),
    "bare.csv": (b"Good film,1\nBad film,0\n", "--noheader reads a table without"),
    "twice.csv": (b"a,a\n1,2\n", "line 1: several columns are named 'a'"),
    "binary.csv": (bytes(range(128, 256)), "line 1: not UTF-8"),
    "after.csv": (b'a\n1\n"1"x\n', "line 3: not CSV"),
    "other.csv": (b"b\n1\n", "no column 'a'; expected one of b"),
    "other.jsonl": (b'{"b": 1}\n', "no column 'a'; expected one of b$"),
}


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files(tmp_path, monkeypatch, name, size):
    content, message = UNREADABLE[name]
    monkeypatch.setattr(text_stream, "_BLOCK", 5)
    path = write(tmp_path, name, content)
    with pytest.raises(DataError, match=message):
        list(ColumnReader(path, ["a"], bad=BadRows("skip")).portions(size))


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
    portions = ColumnReader(path, ["a"]).portions(2)
    assert [len(next(portions)) for _ in range(2)] == [2, 2]
    message = "a.parquet: row 6: 'utf-8' codec can't decode byte 0xe9"
    with pytest.raises(DataError, match=message):
        next(portions)
    with pytest.raises(DataError, match=message):
        read_columns(path)
    kept = read_columns(path, on_bad_input="skip")
    assert kept.lines == [1, 2, 3, 4, 5, 7]


def test_arguments_are_checked(tmp_path):
    for name in ("absent.csv", "absent.parquet"):
        with pytest.raises(DataError, match="cannot be read: No such file"):
            read_columns(tmp_path / name)
    with pytest.raises(UsageError, match="stop, skip, received 'error'"):
        read_columns(write(tmp_path, "a.csv", "a\n1\n"), on_bad_input="error")
    with pytest.raises(UsageError, match="delimiter must be one character"):
        read_columns(tmp_path / "a.csv", delimiter=",,")


def test_parquet_is_imported_when_needed():
    program = "import sys, albert_tf.tables.reader; print('pyarrow' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert out.stdout == b"False\n"


def test_a_text_per_line(tmp_path):
    path = write(tmp_path, "a.txt", 'One, "two\n\nid,text\r\nthree"\n')
    columns = read_columns(path, ["text"])
    assert columns.values == {"text": ['One, "two', "id,text", 'three"']}
    assert columns.lines == [1, 3, 4]
    with pytest.raises(DataError, match=r"no column 'label'; .* one of text \(--del"):
        read_columns(path, ["text", "label"])
    table = write(tmp_path, "b.txt", "text\tlabel\na\tb\n")
    assert read_columns(table, ["label"], delimiter="\t").values == {"label": ["b"]}
