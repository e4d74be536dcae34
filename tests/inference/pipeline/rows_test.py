"""Rows of every format become the same blocks."""

import gzip
import json

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.pipeline import rows
from albert_tf.storage import files

ONE = rows.Reading({"text": "sentence"}, {"text": 1}, ["id"], 2)
TEXTS = ["one", "", "three, with a comma"]


def _write(folder, kind):
    path = folder / f"in.{kind}"
    if kind == "jsonl.gz":
        lines = [json.dumps({"id": k, "sentence": t}) for k, t in enumerate(TEXTS)]
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    elif kind == "tsv":
        lines = [f"{k}\t{t}" for k, t in enumerate(TEXTS)]
        path.write_text("id\tsentence\n" + "\n".join(lines))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pa.table({"sentence": TEXTS, "id": [0, 1, 2]})
        parquet.write_table(table, path)
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl.gz", "tsv", "parquet"])
def test_tables_are_cut_into_blocks(tmp_path, kind):
    ids = ["0", "1", "2"] if kind == "tsv" else [0, 1, 2]
    assert rows.read_blocks(_write(tmp_path, kind), ONE) == [
        {"rows": 2, "inputs": {"text": TEXTS[:2]}, "copied": {"id": ids[:2]}},
        {"rows": 1, "inputs": {"text": TEXTS[2:]}, "copied": {"id": ids[2:]}},
    ]


def test_copied_values_keep_their_types(tmp_path):
    path = tmp_path / "in.jsonl"
    values = [7, 1.5, True, None, "7", [1, "a"]]
    lines = [json.dumps({"id": value, "sentence": "a"}) for value in values]
    path.write_text("\n".join([*lines, '{"id": NaN, "sentence": "a"}']))
    blocks = rows.read_blocks(str(path), ONE._replace(block_size=9))
    assert blocks[0]["copied"]["id"] == [*values, None]


def test_a_remote_file_of_equal_size_is_another_one():
    path = "ram://rows_test/in.txt"
    files.make_folder("ram://rows_test")
    files.write_text(path, "one")
    before = rows.find_sources(path)
    assert rows.find_sources(path) == before
    files.write_text(path, "two")
    assert rows.find_sources(path) != before


def test_every_line_of_text_is_a_row(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("ä\n\nlast\r\n".encode())
    reading = rows.Reading({"text": "text"}, {"text": 1}, [], 10)
    (block,) = rows.read_blocks(str(path), reading)
    assert block["inputs"] == {"text": ["ä", "", "last"]}
    path.write_bytes(b"")
    assert rows.read_blocks(str(path), reading) == []


@pytest.mark.parametrize(
    ("rank", "value", "message"),
    [
        (1, None, "line 2: column 'text': expected a text, received null"),
        (1, ["a"], "line 2: column 'text': expected a text, received \\[\"a\"\\]"),
        (2, "a", "line 2: column 'text': expected a list of texts, received \"a\""),
        (2, ["a", ["b"]], "line 2: .* expected a list of texts"),
    ],
)
def test_other_values_are_named(tmp_path, rank, value, message):
    path = tmp_path / "in.jsonl"
    good = "a" if rank == 1 else ["a", "b"]
    path.write_text("\n".join(json.dumps({"text": v}) for v in (good, value)))
    reading = rows.Reading({"text": "text"}, {"text": rank}, [], 10)
    with pytest.raises(DataError, match=message):
        rows.read_blocks(str(path), reading)


def test_files_are_in_order_and_exist(tmp_path):
    for name in ("b.txt", "a.txt", "c.csv"):
        (tmp_path / name).write_text("x")
    found = rows.find_sources(f"{tmp_path}/c.csv,{tmp_path}/*.txt,{tmp_path}/a.txt")
    assert [source.path[-5:] for source in found] == ["c.csv", "a.txt", "b.txt"]
    with pytest.raises(DataError, match="nothing: no such file"):
        rows.find_sources(f"{tmp_path}/nothing")
    with pytest.raises(UsageError, match="must name a file"):
        rows.find_sources(" , ")


def test_lines_give_one_text_and_no_columns():
    sources = [rows.Source("in.txt", 1, 0)]
    pair = {"question": "q", "context": "c"}
    with pytest.raises(UsageError, match="takes question, context; use .jsonl"):
        rows.check_readable(sources, rows.Reading(pair, dict.fromkeys(pair, 1), [], 10))
    with pytest.raises(UsageError, match="copy_columns: in.txt has no columns"):
        rows.check_readable(sources, ONE)
    rows.check_readable([rows.Source("in.csv", 1, 0)], ONE)
