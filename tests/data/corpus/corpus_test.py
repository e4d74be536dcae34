"""Corpus formats, gzip, detection, and what is said of bad input."""

import gzip
import json
import os
import pathlib
import resource

import pytest

from albert_tf.data.corpus import corpus, formats, source
from albert_tf.data.corpus.corpus import (
    Corpus,
    check_language,
    open_corpus,
    split_sentences,
)
from albert_tf.data.corpus.formats import detect_format
from albert_tf.errors import DataError, UsageError
from albert_tf.tables import text_stream

LINES = "First one here.\nSecond one.\n\nAnother document.\nIts end.\n"
PARAGRAPHS = (
    "The first paragraph is wrapped\r\nby hand. It goes on here\r\nand ends.\r\n\r\n"
    "Mr. Brown is second. He is\r\nlate.\r\n\r\n\r\nA new chapter begins\r\nhere.\r\n"
)
WIKI = (
    '<doc id="1" url="u" title="Fish">\nFish\n\nA fish swims. It has fins.\n\n'
    'Another paragraph.\n</doc>\n<doc id="2" url="u" title="Redirect">\nRedirect\n\n'
    '</doc>\n<doc id="3" url="u" title="C">\nC is a letter.\n</doc>\n'
)


def _write(path, text, encoding="utf-8"):
    data = text if isinstance(text, bytes) else text.encode(encoding)
    path.write_bytes(data)
    return str(path)


def test_paragraphs_with_byte_order_mark_and_carriage_returns(tmp_path):
    path = _write(tmp_path / "a.txt", PARAGRAPHS, "utf-8-sig")
    assert list(open_corpus(path, "paragraphs")) == [
        [
            "The first paragraph is wrapped by hand.",
            "It goes on here and ends.",
            "Mr. Brown is second.",
            "He is late.",
        ],
        ["A new chapter begins here."],
    ]


def test_wikiextractor_skips_empty_documents(tmp_path):
    path = _write(tmp_path / "wiki_00", WIKI + "Stray line.\nAnother.\n")
    found = Corpus(path)
    documents = [document.texts for document in found.documents()]
    assert documents == [
        ["A fish swims. It has fins.", "Another paragraph."],
        ["C is a letter."],
    ]
    assert found.counts["documents_empty"] == 1
    assert found.counts["lines_outside_documents"] == 2


def test_odd_json(tmp_path):
    rows = [
        '{"text": "Half \\ud83d of a pair."}',
        '{"text": "a\\u0000b"}',
        "[" * 100_000,
        '{"text": "Fine."}',
    ]
    path = _write(tmp_path / "a.jsonl", "\n".join(rows))
    found = Corpus(path, on_bad_input="skip")
    assert [d.texts for d in found.documents()] == [["Half   of a pair."], ["Fine."]]
    expected = {
        "surrogates_replaced": 1,
        "lines_with_nul_bytes": 1,
        "lines_not_json": 1,
    }
    assert {k: v for k, v in found.counts.items() if v} == expected
    with pytest.raises(DataError, match="a.jsonl: line 2: contains a NUL character"):
        list(Corpus(path).documents())


def test_a_json_line_too_long_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.data.corpus.corpus.MAX_JSON_BYTES", 5000)
    monkeypatch.setattr(text_stream, "_BLOCK", 1000)
    rows = [{"text": "One."}, {"text": "Two. " * 4000}, {"text": "Three."}]
    path = _write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="a.jsonl: byte 17: a line of more than 5000 b"):
        list(Corpus(path, "jsonl").documents())
    found = Corpus(path, "jsonl", on_bad_input="skip")
    assert [d.texts for d in found.documents()] == [["One."], ["Three."]]
    assert found.counts["lines_too_long"] == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"text": "broken\n{"text": "b"}\n', "looks like JSON"),
        ("a.json", '// made by me\n{"text": "b"}\n', "looks like JSON"),
        ("a.txt", '[{"text":\n "b"}]\n', "looks like JSON"),
        ("a.txt", "BZh91AY&SY", "is compressed with bzip2"),
        ("a.txt", b"\xfd7zXZ\0abc", "is compressed with xz"),
        ("a.txt", b"\xff\xfe\0\0H\0\0\0", "a.txt: UTF-16 or UTF-32 text"),
        ("a.txt", LINES.encode("utf-16"), "a.txt: UTF-16 or UTF-32 text"),
        ("a.txt", b"PNG\n\0\1\2binary\n", "a.txt: byte 4: a NUL byte"),
        ("a.gz", gzip.compress(LINES.encode() * 1000)[:40], "a.gz: damaged or trunc"),
    ],
)
def test_formats_that_are_not_read(tmp_path, name, text, message):
    path = _write(tmp_path / name, text)
    with pytest.raises(DataError, match=message):
        list(Corpus(path).documents())


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: must be a regular file"):
        Corpus(str(tmp_path / "pipe"))


def test_json_lines(tmp_path):
    rows = [{"text": "One. Two.\nThree."}, {"text": "\n"}, {"text": "Four."}]
    path = _write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert list(open_corpus(path)) == [["One.", "Two.", "Three."], ["Four."]]
    with pytest.raises(DataError, match=r"a.jsonl: line 1: needs .* 'body'"):
        list(open_corpus(path, text_field="body"))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = str(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"body": ["One. Two.", "Three."]}), path)
    assert list(open_corpus(path, text_field="body")) == [["One.", "Two."], ["Three."]]
    with pytest.raises(DataError, match="no column 'text'; expected one of body$"):
        list(open_corpus(path))
    data = pathlib.Path(path).read_bytes()
    _write(tmp_path / "a.parquet", data[:-20])
    with pytest.raises(DataError, match="a.parquet: cannot be read"):
        list(open_corpus(path, text_field="body"))


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
    assert list(open_corpus("tfds:prose:1.0.0", tfds_data_dir=str(tmp_path))) == [
        ["One.", "Two."],
        ["Three."],
        ["Four.", "Five."],
    ]
    with pytest.raises(DataError, match="no feature 'body' .* features are text$"):
        list(open_corpus("tfds:prose", tfds_data_dir=str(tmp_path), text_field="body"))
    with pytest.raises(DataError, match="not prepared in .* --download downloads"):
        Corpus("tfds:nothing_like_it", tfds_data_dir=str(tmp_path))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt"])
def test_gzip_is_recognized_by_its_bytes(tmp_path, name):
    path = _write(tmp_path / name, gzip.compress(LINES.encode()))
    found = Corpus(path)
    assert [document.texts for document in found.documents()][1] == [
        "Another document.",
        "Its end.",
    ]
    assert len(found.sha256[path]) == 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINES, "lines"),
        (PARAGRAPHS, "paragraphs"),
        (WIKI, "wikiextractor"),
        ('{"text": "a"}\n', "jsonl"),
        ("One. Two. Three goes. And on.\nMore. Yes more. So much.\nAnd. end", None),
        ("我来了。\n你呢？\n\n他走了！\n好。\n", "lines"),
        ("", "paragraphs"),
        # WikiText: a paragraph per line, with blanks around the punctuation.
        (
            " \n = A ship = \n \n"
            + " It sailed in 1901 , from Bilbao . It sank . Nobody was hurt . \n" * 9,
            "paragraphs",
        ),
        # A sentence per line, in lower case, of the same kind.
        ("he went home , as always .\nthe ship had left .\n" * 9, "lines"),
        # A novel with one line a paragraph, and neighbouring lines in headings only.
        (
            "MRS. GASKELL.\nCHAPTER I.\n\nTHE DAWN.\n \n"
            + "It was a June morning. The room was full of light.\n\n" * 9,
            "paragraphs",
        ),
    ],
)
def test_detection(tmp_path, text, expected):
    path = _write(tmp_path / "a", text)
    assert detect_format(path) == (expected or "paragraphs")


def test_the_detected_format_is_logged(tmp_path, caplog):
    _write(tmp_path / "a.txt", LINES)
    _write(tmp_path / "b.txt", LINES)
    _write(tmp_path / "c.txt", PARAGRAPHS)
    with caplog.at_level("INFO", logger="absl"):
        Corpus(f"{tmp_path}/*.txt")
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        f"{tmp_path}/a.txt and 1 more: read as --input_format=lines",
        f"{tmp_path}/c.txt: read as --input_format=paragraphs",
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.TSV.gz"])
def test_the_text_of_a_table_is_one_of_its_columns(tmp_path, name):
    separator = "," if name == "a.csv" else "\t"
    rows = [["text", "label"], ['"A film,\nseen. Twice."', "1"], ["Short."]]
    data = "\n".join(separator.join(row) for row in rows).encode()
    path = _write(tmp_path / name, gzip.compress(data) if "gz" in name else data)
    skipping = Corpus(path, on_bad_input="skip")
    assert [document.texts for document in skipping.documents()] == [
        ["A film,", "seen. Twice."]
    ]
    assert skipping.counts["rows of another width"] == 1
    assert len(skipping.sha256[path]) == 64
    with pytest.raises(DataError, match="line 4: expected 2 columns, received 1"):
        list(Corpus(path).documents())
    with pytest.raises(DataError, match="no column 'body'; .*one of text, label"):
        list(Corpus(path, text_field="body").documents())
    assert list(Corpus(path, "lines").documents())
    assert next(
        open_corpus(path, text_field="0", header=False, on_bad_input="skip")
    ) == ["text"]


def test_the_hand_made_corpus_is_lines():
    golden = pathlib.Path(__file__).parents[2] / "golden/tf1_data/input.txt"
    documents = list(open_corpus(str(golden)))
    assert len(documents) == 33
    assert documents[0][0].startswith("The harbour master counted 1,204 boats")


def test_bytes_that_are_not_utf8(tmp_path):
    path = _write(tmp_path / "a.txt", b"Good line.\nBad \xff line.\nGood again.\n")
    with pytest.raises(DataError, match=r"a.txt: byte 15: not UTF-8 \(0xff\)"):
        list(open_corpus(path, "lines"))
    found = Corpus(path, "lines", on_bad_input="skip")
    assert next(found.documents()).texts == ["Good line.", "Good again."]
    assert found.counts["lines_not_utf8"] == 1


@pytest.mark.parametrize("line", ["word " * 10, "x" * 50, "字" * 17])
def test_a_line_without_end_is_cut(tmp_path, monkeypatch, line):
    monkeypatch.setattr(text_stream, "_BLOCK", 64)
    text = line * 20
    path = _write(tmp_path / "a.txt", text)
    bad = source.BadRows("stop", Corpus(path).counts)
    pieces = list(source.read_lines(path, bad, max_bytes=100))
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


def test_long_documents_are_cut_in_parts():
    texts = iter(["a" * 30, "b" * 30, "c" * 250, None, "d"])
    counts = Corpus("docstrings:").counts
    parts = list(formats.group_documents(texts, counts, max_chars=100))
    assert "".join(map("".join, parts)) == "a" * 30 + "b" * 30 + "c" * 250 + "d"
    assert all(sum(map(len, part)) <= 160 for part in parts)
    assert parts[-1] == ["d"]
    assert counts["documents_cut"] == len(parts) - 2


def test_inputs_that_name_nothing(tmp_path):
    with pytest.raises(DataError, match="input_file: .*none.*: no such file, and no"):
        Corpus(str(tmp_path / "none*"))
    with pytest.raises(DataError, match="is a folder; use a pattern such as"):
        Corpus(str(tmp_path))
    with pytest.raises(UsageError, match="must name an input"):
        Corpus(" , ")
    with pytest.raises(DataError, match="contains no text"):
        list(open_corpus(_write(tmp_path / "a.txt", "\n \n")))


def test_repeated_inputs_are_read_once(tmp_path):
    path = _write(tmp_path / "a.txt", LINES)
    found = Corpus(f"{path},{tmp_path}/*.txt")
    assert len(found.sources) == 1
    assert found.counts["inputs_repeated"] == 1


def test_wrong_arguments(tmp_path):
    path = _write(tmp_path / "a.txt", LINES)
    with pytest.raises(UsageError, match="input_format: .*received 'xml'"):
        Corpus(path, "xml")
    with pytest.raises(UsageError, match="on_bad_input"):
        Corpus(path, on_bad_input="ignore")
    with pytest.raises(UsageError, match="docstrings:max_bytes=<number>"):
        Corpus("docstrings:max=3")


def test_documents_have_keys_of_their_own(tmp_path):
    for name in "ab":
        _write(tmp_path / f"{name}.txt", LINES)
    documents = list(Corpus(f"{tmp_path}/*.txt").documents())
    assert [(d.source, d.number) for d in documents] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert corpus.document_sentences(documents[0], "en") == documents[0].texts


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            'Mr. Smith paid  $3.50.\n"Really?" he said. It was 3 p.m. then.',
            ["Mr. Smith paid $3.50.", '"Really?" he said.', "It was 3 p.m. then."],
        ),
        (
            "de",
            "Das ist z. B. gut. Dr. Müller ging.",
            ["Das ist z. B. gut.", "Dr. Müller ging."],
        ),
        (
            "zh",
            "我来了。你呢？我说：“好的。”他走了！行",
            ["我来了。", "你呢？", "我说：“好的。”", "他走了！", "行"],
        ),
        ("ja", "今日は。元気？はい", ["今日は。", "元気？", "はい"]),
        ("hi", "मैं हूँ। तुम हो।", ["मैं हूँ।", "तुम हो।"]),
        ("en", " \n\t ", []),
        ("en", "no end", ["no end"]),
    ],
)
def test_sentences(language, text, expected):
    assert split_sentences(text, language) == expected


def test_only_white_space_is_lost():
    text = "One. (Two!) Three...\u00a0four? 'Five' e.g. six; seven.\n\nEight"
    joined = "".join(split_sentences(text)).replace(" ", "")
    assert joined == "".join(text.split())
    with pytest.raises(UsageError, match="language: .*received 'English!'"):
        check_language("English!")
