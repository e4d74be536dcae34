"""Corpus formats, gzip, detection, and what is said of bad input."""

import functools
import gzip
import json
import os
import resource

import pyarrow.parquet
import pytest

from albert_tf.data.corpus import formats
from albert_tf.data.corpus.corpus import Corpus, open_corpus
from albert_tf.errors import DataError, UsageError
from albert_tf.tables import text_stream
from albert_tf.tables.columns import BadRows

gz = functools.partial(gzip.compress, mtime=0)  # the bytes name tests
LINES = "First one here.\nSecond one.\n\nAnother document.\nIts end.\n"
LINE_SENTENCES = "First one here.|Second one.||Another document.|Its end."
PARAGRAPHS = (
    "The first paragraph is wrapped\r\nby hand. It goes on here\r\nand ends.\r\n\r\n"
    "Mr. Brown is second. He is\r\nlate.\r\n\r\n\r\nA new chapter begins\r\nhere.\r\n"
)
WIKI = (
    '<doc id="1" url="u" title="Fish">\nFish\n\nA fish swims. It has fins.\n\n'
    'Another paragraph.\n</doc>\n<doc id="2" url="u" title="Redirect">\nRedirect\n\n'
    '</doc>\n<doc id="3" url="u" title="C">\nC is a letter.\n</doc>\n'
    "Stray line.\nAnother.\n"
)
DENSE = "One. Two. Three goes. And on.\nMore. Yes more. So much.\nAnd. end"
DENSE_SENTENCES = "One.|Two.|Three goes.|And on.|More.|Yes more.|So much.|And.|end"
ROWS = [{"text": "One. Two.\nThree."}, {"text": "\n"}, {"text": "Four."}]


def _write(path, content, encoding="utf-8"):
    data = content if isinstance(content, bytes) else content.encode(encoding)
    path.write_bytes(data)
    return str(path)


def _json(rows):
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


def _texts(corpus):
    return [document.texts for document in corpus.documents()]


def _counts(corpus):
    return {name: count for name, count in corpus.counts.items() if count}


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (LINES, {}, LINE_SENTENCES),
        (
            "\ufeff" + PARAGRAPHS,
            {},
            "The first paragraph is wrapped by hand.|It goes on here and ends.|"
            "Mr. Brown is second.|He is late.||A new chapter begins here.",
        ),
        (gz(LINES.encode()), {}, LINE_SENTENCES),
        (WIKI, {}, "A fish swims.|It has fins.|Another paragraph.||C is a letter."),
        (_json(ROWS), {}, "One.|Two.|Three.||Four."),
        (DENSE + "\n\nNew.", {}, f"{DENSE_SENTENCES}||New."),
        (
            "One. Two.\nThree.\n",
            {"input_format": "table", "text_field": "0", "header": False},
            "One.|Two.||Three.",
        ),
    ],
)
def test_formats(tmp_path, content, options, expected):
    found = open_corpus(_write(tmp_path / "a", content), **options)
    assert "||".join(map("|".join, found)) == expected


def test_what_was_left_out_is_counted(tmp_path):
    found = Corpus(_write(tmp_path / "wiki_00", WIKI))
    assert len(_texts(found)) == 2
    assert _counts(found) == {"documents_empty": 1, "lines_outside_documents": 2}


LEFT_OUT = ("surrogates_replaced", "lines_with_nul_bytes", "lines_without_text")
TABLE = 'text{0}label\n"A film,\nseen. Twice."{0}1\nShort.\n'
FILM = (
    [["A film,", "seen. Twice."]],
    {"rows of another width": 1, "rows of several lines": 1},
    "line 4: expected 2 columns, received 1",
)


@pytest.mark.parametrize(
    ("name", "content", "texts", "counts", "message"),
    [
        (
            "a.jsonl",
            '{"text": "a\\u0000b"}\n\n{"text": "Half \\ud83d of."}\n{"text": 5}',
            [["Half   of."]],
            dict.fromkeys([*LEFT_OUT, "blank lines"], 1),
            "line 1: column 'text' .* must contain text, received a NUL",
        ),
        (
            "a.jsonl",
            '{"text": "One."}\n[' + "[" * 100_000,
            [["One."]],
            {"lines_not_json": 1},
            "line 2: not JSON",
        ),
        ("a.jsonl", '{"a":\n', [], {"lines_not_json": 1}, "line 1: not JSON"),
        (
            "a.jsonl",
            70 * '{"x": 1, "text2": "no"}\n' + '{"text": "One."}\n',
            [["One."]],
            {"lines_without_text": 70},
            "line 1: column 'text' .--text_column. must contain strings, received None",
        ),
        (
            "a.txt",
            b"Good line.\nBad \xff line.\nGood again.\nNUL \0 in it.\n",
            [["Good line.", "Good again."]],
            {"lines_not_utf8": 1, "lines_with_nul_bytes": 1},
            "line 2: not UTF-8 text",
        ),
        ("a.csv", TABLE.format(","), *FILM),
        ("a.TSV.gz", gz(TABLE.format("\t").encode()), *FILM),
    ],
)
def test_bad_rows_stop_or_are_skipped(tmp_path, name, content, texts, counts, message):
    path = _write(tmp_path / name, content)
    kind = {"a.txt": "lines", "a.jsonl": "jsonl"}.get(name, "auto")
    with pytest.raises(DataError, match=f"{name}: {message}.*--on_bad_input=skip"):
        list(Corpus(path, kind).documents())
    found = Corpus(path, kind, on_bad_input="skip")
    assert _texts(found) == texts
    assert _counts(found) == counts
    assert len(found.sha256[path]) == 64


@pytest.mark.parametrize("field", ["1", "tags"])
def test_a_field_of_json_lines_has_exactly_the_name_given(tmp_path, field):
    path = _write(tmp_path / "a.jsonl", _json([{"text": "x", "ner_tags": "y"}]))
    with pytest.raises(DataError, match=f"line 1: column {field!r} .* received None"):
        list(Corpus(path, text_field=field).documents())


def test_a_json_line_too_long_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.data.corpus.corpus.MAX_ROW_BYTES", 5000)
    monkeypatch.setattr(text_stream, "_BLOCK", 1000)
    rows = [{"text": "One."}, {"text": "Two. " * 4000}, {"text": "Three."}]
    path = _write(tmp_path / "a.jsonl", _json(rows))
    with pytest.raises(DataError, match="a.jsonl: line 2: a line of more than 5000 b"):
        list(Corpus(path, "jsonl").documents())
    found = Corpus(path, "jsonl", on_bad_input="skip")
    assert _texts(found) == [["One."], ["Three."]]
    assert _counts(found) == {"lines_too_long": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "broken\n{"text": "b"}\n', "looks like JSON"),
        ("a.json", '// made by me\n{"text": "b"}\n', "looks like JSON"),
        ("a.txt", '[{"text":\n "b"}]\n', "looks like JSON"),
        ("a.csv", "id,content\n1,One.\n", "no column 'text'; .*one of id, content"),
        ("a.txt", "BZh91AY&SY", "is compressed with bzip2"),
        ("a.txt", b"\xfd7zXZ\0abc", "is compressed with xz"),
        ("a.txt", LINES.encode("utf-16"), "UTF-16 or UTF-32 text"),
        ("a.txt", "\n \n", "contains no text"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    path = _write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        list(open_corpus(path))


def test_parquet(tmp_path):
    path = str(tmp_path / "a.parquet")
    table = pyarrow.table({"body": ["One. Two.", "Three."], "id": [1, 2]})
    pyarrow.parquet.write_table(table, path)
    found = Corpus(path, text_field="body")
    assert _texts(found) == [["One. Two."], ["Three."]] and found.sha256[path]
    for column, message in (
        ("bodies", "one of body, id; did you mean 'body'"),
        ("id", "row 1: column 'id' .* must contain strings, received 1"),
    ):
        with pytest.raises(DataError, match=message):
            list(open_corpus(path, text_field=column))


@pytest.mark.slow
def test_tfds(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    texts = ["One. Two.", "Three.", "Four. Five."]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="prose",
        version="1.0.0",
        features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
        split_datasets={"train": list(enumerate({"text": text} for text in texts))},
        data_dir=tmp_path,
        disable_shuffling=True,
    )
    monkeypatch.delattr(tfds, "builder")  # what would download
    expected = [["One.", "Two."], ["Three."], ["Four.", "Five."]]
    place = {"tfds_data_dir": str(tmp_path)}
    assert list(open_corpus("tfds:prose:1.0.0", **place)) == expected
    message = r"no feature 'texts' .* features are text; did you mean 'text'\?$"
    with pytest.raises(DataError, match=message):
        list(open_corpus("tfds:prose", text_field="texts", **place))
    with pytest.raises(DataError, match="not prepared in .* --download downloads"):
        Corpus("tfds:nothing_like_it", **place)


CHINESE = "我来了。\n你呢？\n\n他走了！\n好。\n"
# A paragraph per line, with blanks around the punctuation.
WIKITEXT = " \n = A ship = \n \n"
WIKITEXT += " It sailed in 1901 , from Bilbao . It sank . Nobody was hurt . \n" * 9
# A sentence per line, in lower case, of the same kind.
LOWER = "he went home , as always .\nthe ship had left .\n" * 9
# A novel with one line a paragraph, and neighbouring lines in headings only.
NOVEL = "MRS. GASKELL.\nCHAPTER I.\n\nTHE DAWN.\n \n"
NOVEL += "It was a June morning. The room was full of light.\n\n" * 9


# Scraped pages: a paragraph per line, some after a title, some with lines of a menu.
LONG = "The room was full of light, and nobody " * 6 + "came. They had all gone home"
PAGES = f"Home\nAbout us\nA title\n{LONG}.\n{LONG}!\n{LONG}.\n\n" * 9
TITLED = f"A title\n{LONG}\n\n" * 9
# The same in scripts of which a small letter does not begin a sentence, or has none.
RUSSIAN = "Он ушёл домой. Ночь была долгой! Что теперь?\nИ снег. Был холод.\n\n" * 9
HINDI = "यह एक वाक्य है। वह घर गया।\nवह है। और फिर।\n\n" * 9
FRENCH = "Il part ! Était-il là ?\nAh. « Oui », dit-il.\n\n" * 9
QUOTED = 'He went home. "What now?" he said.\nYes it is. ¿Era tarde?\n\n' * 9
ARABIC = "ذهب الولد إلى البيت. ثم نام؟\nهل عاد؟ نعم.\n\n" * 9


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        ("lines", (LINES, CHINESE, LOWER)),
        ("lines", ("Он ушёл в г. Москву.\nИ снег.\n", "वह घर गया।\nवह है।\n")),
        ("paragraph_lines", (DENSE, WIKITEXT, PAGES, TITLED)),
        ("paragraph_lines", (RUSSIAN, HINDI, ARABIC, FRENCH, QUOTED)),
        ("paragraph_lines", (PAGES.replace("\n", "\r"),)),
        ("paragraphs", (PARAGRAPHS, "", NOVEL)),
        ("wikiextractor", (WIKI,)),
        ("jsonl", ('{"text": "a"}\n',)),
    ],
)
def test_detection(tmp_path, texts, expected):
    for text in texts:
        assert formats.detect_format(_write(tmp_path / "a", text)) == expected, text


def test_inputs_are_read_once_and_their_format_is_logged(tmp_path, caplog):
    for name, text in (("a", LINES), ("b", LINES), ("c", PARAGRAPHS)):
        _write(tmp_path / f"{name}.txt", text)
    with caplog.at_level("INFO", logger="absl"):
        found = Corpus(f"{tmp_path}/b.txt,{tmp_path}/*.txt")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/b.txt and 1 more: read as --input_format=lines (a sentence per "
        "line, an empty line between documents; 2 documents in the first 64 KiB)",
        f"{tmp_path}/c.txt: read as --input_format=paragraphs (two empty lines between "
        "documents; 2 documents in the first 64 KiB)",
    ]
    assert _counts(found) == {"inputs_repeated": 1}
    keys = [(document.source, document.number) for document in found.documents()]
    assert keys == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("line", ["word " * 10, "x" * 50, "字" * 17])
def test_a_line_without_end_is_cut(tmp_path, monkeypatch, line):
    monkeypatch.setattr(text_stream, "_BLOCK", 64)
    text = line * 20
    bad = BadRows("stop")
    path = _write(tmp_path / "a.txt", text)
    pieces = list(text_stream.TextStream(path, bad, longest=100).pieces())
    assert "".join(pieces) == text
    assert bad.counts["lines_cut"] >= len(pieces) - 1 > 3
    assert max(len(piece.encode()) for piece in pieces) <= 164


@pytest.mark.slow
def test_a_huge_line_needs_little_memory(tmp_path):
    path = tmp_path / "a.txt"
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(b"some words in one line " * 50_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(len(text) for d in Corpus(str(path)).documents() for text in d.texts)
    assert size > 110_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_document_of_megabytes_is_a_warning(tmp_path, caplog):
    text = f"{LONG}. " * 4000 + "\n\n\n"
    corpus = Corpus(_write(tmp_path / "a", text * 2))
    assert len(list(corpus.documents())) == 10
    list(corpus.restarted().documents())
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "a: has a document of more than 1,048,576 characters; read as" in warning


def test_long_documents_are_cut_in_parts():
    texts = iter(["a" * 30, "b" * 30, "c" * 250, None, "d"])
    counts = Corpus("docstrings:").counts
    found = formats.group_documents(texts, counts, max_chars=100)
    parts, pieces = zip(*found, strict=True)
    assert pieces == (*range(len(parts) - 1), 0)
    assert "".join(map("".join, parts)) == "a" * 30 + "b" * 30 + "c" * 250 + "d"
    assert all(sum(map(len, part)) <= 160 for part in parts)
    assert parts[-1] == ["d"]
    assert counts["documents_cut"] == len(parts) - 2


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("{}/none*", {}, "input_file: .*none.*: no such file, and no"),
        ("{}", {}, "is a folder; use a pattern such as"),
        ("{}/pipe", {}, "pipe: must be a regular file"),
        (" , ", {}, "must name an input"),
        ("{}/a.txt", {"input_format": "xml"}, "input_format .*received 'xml'"),
        ("{}/a.txt", {"on_bad_input": "ignore"}, "on_bad_input"),
        ("docstrings:max=3", {}, "docstrings:max_bytes=<number>"),
    ],
)
def test_wrong_inputs(tmp_path, inputs, options, message):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((DataError, UsageError), match=message):
        Corpus(inputs.format(tmp_path), **options)
