"""Reading tagged sentences: CoNLL's columns, JSON lines, Parquet, rows."""

import json

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks import tagging
from albert_tf.tasks.tagging_files import (
    ConllSource,
    TaggedSource,
    TaggedTableSettings,
)

TASKS = {task.name: task for task in tagging.TASKS}
COLUMNS = TaggedTableSettings()


def read_tagged(path, columns=COLUMNS, **options):
    return TaggedSource(columns=columns, **options).read_file(path)


def write(tmp_path, text, name="a.conll"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_conll_2003(tmp_path):
    text = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
        "Peter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\n-DOCSTART- -X- O O\n"
        "Paris NNP I-NP I-LOC\nRome NNP I-NP B-LOC\n"
    )
    write(tmp_path, text, "eng.testa")
    found = TASKS["conll2003"].splits["dev"].read(str(tmp_path))
    words = [["EU", "rejects"], ["Peter", "Blackburn"], ["Paris", "Rome"]]
    assert found.tokens == words
    assert found.labels == [["B-ORG", "O"], ["B-PER", "I-PER"], ["B-LOC", "B-LOC"]]
    assert found.lines == [3, 6, 9]
    assert "IOB1" in found.note
    with pytest.raises(DataError, match=r"no file eng\.train or train\.txt"):
        TASKS["conll2003"].splits["train"].read(str(tmp_path))
    with pytest.raises(UsageError, match="data_dir"):
        TASKS["conll2003"].splits["train"].read("")


@pytest.mark.parametrize(
    "text", ["1 Der O\n2 Rat B-ORG\n\n1 Ja O\n", "O what\nB-ACTOR Tom\n"]
)
def test_numbers_and_tags_are_no_words(tmp_path, text):
    """As in GermEval 2014 and CoNLL-U, and in the MIT movie corpus."""
    with pytest.raises(DataError, match="a.conll: the first column must be the words"):
        read_tagged(write(tmp_path, text))


def test_wnut17_with_byte_order_marks(tmp_path):
    """As in the released dev file: two such lines, and an I- that starts an entity."""
    text = "\ufeffA\tO\nRT\tI-group\n\nDubbz\ufeff\tB-person\n\n!\tO\n\ufeff\n"
    write(tmp_path, text, "emerging.dev.conll")
    found = TASKS["wnut17"].splits["dev"].read(str(tmp_path))
    assert found.tokens == [["A", "RT"], ["Dubbz\ufeff"], ["!"]]
    assert found.labels == [["O", "B-group"], ["B-person"], ["O"]]


@pytest.mark.parametrize(
    "text",
    [
        "a\tO\r\n\u00a0\tB-X\r\n\r\nc\tO\r\n",
        "a O\n\u00a0  B-X \n \t\n\n\nc O",
        "a\tO\r\u00a0\tB-X\r\rc\tO",
        "\n\na x O\n\u00a0 y B-X\n\nc z O\n",
    ],
)
def test_line_ends_and_separators(tmp_path, text):
    found = read_tagged(write(tmp_path, text))
    assert found.tokens == [["a", "\u00a0"], ["c"]]
    assert found.labels == [["O", "B-X"], ["O"]]
    assert found.place(1, 0).endswith(f": line {found.lines[1]}")


def test_words_without_tags(tmp_path):
    path = write(tmp_path, "a\nb\n\nc\n")
    found = read_tagged(path, labelled=False)
    assert (found.tokens, found.labels) == ([["a", "b"], ["c"]], None)
    with pytest.raises(DataError, match="line 1: the word 'a' has no tag"):
        read_tagged(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n\nc O\n", "the word 'b' has no tag"),
        ("a X O\nb O\n\nc X O\n", "expected 3 columns, as in line 1, .* 2: 'b O'"),
        ("a O\nb X O\n\nc O\n", "expected 2 columns"),
        ("a\tO\n\tO\n\nc\tO\n", "there is no word before 'O'"),
        (b"a O\nb\xe9 O\n\nc O\n", "not UTF-8 text"),
        (b"a O\n\0 O\n\nc O\n", "a NUL byte"),
    ],
)
def test_bad_line_is_named(tmp_path, text, message, caplog):
    path = write(tmp_path, text)
    for labelled in (True, False):
        with pytest.raises(DataError, match=r"a\.conll: line 2: " + message):
            read_tagged(path, labelled=labelled)
    found = read_tagged(path, on_bad_input="skip")
    assert (found.tokens, found.labels) == ([["c"]], [["O"]])
    assert found.skipped == {"sentences that cannot be used": 1}
    assert f"{path}: sentences that cannot be used 1" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected sentences of words"),
        (b"-DOCSTART- O\n\n", "expected sentences of words"),
        (b"a B-X\n\nc O\nb X\n", "line 4: the tag must be O, B-type or I-type"),
    ],
)
def test_bad_file(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        read_tagged(write(tmp_path, data))


def jsonl(tmp_path, *rows):
    return write(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")


GOOD = {"tokens": ["a", "b"], "tags": ["I-X", "O"], "n": {"x": 1}}


def test_json_lines(tmp_path):
    path = jsonl(tmp_path, GOOD, {"tokens": [], "tags": []}, GOOD)
    found = TaggedSource(names=("a.jsonl",)).read(str(tmp_path))
    assert found.tokens == [["a", "b"], [], ["a", "b"]]
    assert found.labels[0] == ["B-X", "O"]
    part = found.select([2])
    assert part.ids == ["2"] and part.place(0, 1) == f"{path}: line 3: word 1 (from 0)"


def test_spellings_of_a_tag_are_one(tmp_path):
    for tags, labels in ((["B-X ", " O"], ["B-X", "O"]), ([1.0, 0], ["1", "0"])):
        assert read_tagged(jsonl(tmp_path, GOOD | {"tags": tags})).labels == [labels]


def test_other_names_of_columns(tmp_path):
    path = jsonl(tmp_path, {"words": ["a"], "ner": ["O"], "id": "x"})
    names = {"tokens_column": "words", "tags_column": "ner", "id_column": "id"}
    found = read_tagged(path, TaggedTableSettings(**names))
    assert (found.tokens, found.labels, found.ids) == ([["a"]], [["O"]], ["x"])


def test_json_lines_without_tags(tmp_path):
    for tags in ({}, {"tags": None}):
        path = jsonl(tmp_path, {"tokens": ["a"]} | tags)
        assert read_tagged(path, labelled=False).labels is None
        with pytest.raises(DataError, match="tags"):
            read_tagged(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tags": ["O"]}, "as many tags as words, 2, received 1"),
        ({"tags": ["O", None]}, r"tags\[1\]: expected text, received nothing"),
        ({"tags": ["O", ""]}, r"word 1 \(from 0\), 'b', has no tag"),
        ({"tokens": "a b"}, "tokens: expected a list, received 'a b'"),
        ({"tokens": ["a", ["b"]]}, r"tokens\[1\]: expected text, received \['b'\]"),
    ],
)
def test_bad_row_is_named(tmp_path, changes, message):
    path = jsonl(tmp_path, GOOD, GOOD | changes)
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*" + message):
        read_tagged(path)
    found = read_tagged(path, on_bad_input="skip")
    assert len(found) == 1 and sum(found.skipped.values()) == 1


def test_rows_of_tensorflow_datasets():
    def read(*rows):
        names = {"ner": ("O", "B-PER", "I-PER")}
        return ConllSource().from_rows(TfdsRows("tfds", names, rows))

    rows = [{"tokens": ["Ann", "Lee", "is"], "ner": [1, 2, 0]}]
    found = read(*rows, {"tokens": [], "ner": []})
    assert found.labels == [["B-PER", "I-PER", "O"]]
    assert found.ids == ["0"]
    for tags, message in (
        ([3], r"ner\[0\]: expected text, received 3"),
        (None, "ner: expected a list, received nothing"),
        ([0, 0], "expected as many tags as words, 1, received 2"),
    ):
        with pytest.raises(DataError, match=f"row 0: {message}"):
            read({"tokens": ["a"], "ner": tags})
