"""Reading tables, good and bad."""

import gzip

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.tables import (
    LabelledTableSettings,
    TableSettings,
    TableSource,
    find_labels,
    label_ids,
    read_table,
)


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_with_quotes(tmp_path):
    path = write(
        tmp_path,
        "a.csv",
        'label,text\r\npos,"Good, ""really""\r\ngood"\r\n\r\nneg,ü\r\n',
    )
    table = read_table(path)
    assert table.texts == ['Good, "really"\r\ngood', "ü"]
    assert table.labels == ["pos", "neg"]
    assert table.text_pairs is None
    assert table.lines == [3, 5]


def test_tsv_without_quotes_and_header(tmp_path):
    path = write(tmp_path, "a.tsv", 'gj\t1\t*\t"Sailors rode\ngj\t0\t\tIt\'s "it"\n')
    table = read_table(
        path, text_column="3", label_column="1", header=False, quoting=False
    )
    assert table.texts == ['"Sailors rode', 'It\'s "it"']
    assert table.labels == ["1", "0"]
    assert table.lines == [1, 2]


def test_pairs_gzip_bom_delimiter(tmp_path):
    text = "\ufeffa;b;c\nx;y;1\n".encode()
    path = write(tmp_path, "a.csv.gz", gzip.compress(text))
    table = read_table(
        path,
        text_column="a",
        text_pair_column="b",
        label_column=None,
        delimiter=";",
    )
    assert (table.texts, table.text_pairs, table.labels) == (["x"], ["y"], None)


def test_long_cell(tmp_path):
    path = write(tmp_path, "a.csv", "text,label\n" + "word " * 60_000 + ",x\n")
    assert len(read_table(path).texts[0]) == 300_000


BAD = {
    "empty": (b"", "received an empty file"),
    "only header": (b"text,label\n", "expected rows below the header"),
    "near column": (b"texts,label\na,b\n", "did you mean 'texts'"),
    "other separator": (b"text\tlabel\na\tb\n", "--delimiter sets another"),
    "no header": (b"Good film,1\nBad film,0\n", "--noheader reads a table without"),
    "column": (b"sentence,label\na,b\n", "no column 'text'; expected one of sentence"),
    "twice": (b"text,text,label\na,b,c\n", "several columns are named 'text'"),
    "ragged": (b"text,label\na,b\nc\n", "line 3: expected 2 columns, received 1"),
    "more": (b"text,label\na,b,c\n", "line 2: expected 2 columns, received 3"),
    "encoding": (b"text,label\na,b\n\xe9,b\n", "line 3: not UTF-8"),
    "binary": (bytes(range(128, 256)), "line 1: not UTF-8"),
    "quote": (b'text,label\n"a,b\nc,d\n', "line 2: not CSV: unexpected end"),
    "after quote": (b'text,label\na,b\n"a"x,b\n', "line 3: not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(tmp_path, case):
    content, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read_table(write(tmp_path, "a.csv", content))
    assert "a.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_bad_gzip_bad_number(tmp_path):
    with pytest.raises(DataError, match="none.csv: cannot be read"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match="damaged or truncated gzip file"):
        read_table(write(tmp_path, "a.csv.gz", gzip.compress(b"text,label\n")[:-3]))
    with pytest.raises(DataError, match="no column '2'; expected a number from 0 to 1"):
        path = write(tmp_path, "b.csv", "a,b\n")
        read_table(path, text_column="2", label_column="1", header=False)
    with pytest.raises(UsageError, match="delimiter must be one character"):
        read_table(tmp_path / "b.csv", delimiter=",,")


def test_labels(tmp_path):
    table = read_table(write(tmp_path, "a.csv", "text,label\na,10\nb,9\nc,10\n"))
    assert find_labels(table) == ["9", "10"]
    assert label_ids(table, ["9", "10"]) == [1, 0, 1]
    with pytest.raises(
        DataError, match="line 3: expected one of the labels 10, received '9'"
    ):
        label_ids(table, ["10"])
    empty = read_table(write(tmp_path, "b.csv", "text,label\na,x\nb,\n"))
    with pytest.raises(DataError, match="line 3: the label is empty"):
        find_labels(empty)
    one = read_table(write(tmp_path, "c.csv", "text,label\na,x\n"))
    with pytest.raises(DataError, match="2 different labels, received only 'x'"):
        find_labels(one)


def test_settings_describe_the_same_table(tmp_path):
    path = write(tmp_path, "a.csv", 'b;x;"q\na;y;z\n')
    options = {"text_column": "2", "header": False, "delimiter": ";", "quoting": False}
    settings = LabelledTableSettings(label_column="0", **options)
    assert settings.read_table(path) == read_table(path, label_column="0", **options)
    table = TableSettings(**options, text_pair_column="1").read_table(path)
    assert (table.texts, table.text_pairs, table.labels) == (
        ['"q', "z"],
        ["x", "y"],
        None,
    )


def test_source_reads_within_a_folder(tmp_path):
    write(tmp_path, "a.tsv", "text\tlabel\nx\t1\n")
    source = TableSource("a.tsv", LabelledTableSettings())
    assert source.read(str(tmp_path)).labels == ["1"]
    assert TableSource(str(tmp_path / "a.tsv"), TableSettings()).read().texts == ["x"]
