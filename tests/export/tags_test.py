"""Token classification in a SavedModel answers as `TokenClassifier` does in Python."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import row_steps, tags
from albert_tf.inference.token_classifier import TokenClassifier
from albert_tf.models.classifiers import AlbertTokenClassifier
from albert_tf.tasks import iob
from tests import tiny
from tests.export import heads

TEXTS = [
    "Anna Seghers, a writer, lived in Mainz. " * 3,
    "",
    " \n",
    "(U.S.-based) don't stop... now!? €5 -- ok",
    "a\u00a0b\u3000c\x1cd\u0085e",
    "हिन्दी है। ¿Émile? ΟΔΟΣ 😀😀 👩‍👩‍👧 \u0301 \U0010ffff",
    "x" * 300 + " " + "?" * 100 + "…a\0b",
    "\ufeffbyte order mark",
]


@pytest.fixture(scope="module")
def find(tokenizer):
    return TokenClassifier(heads.make_model("token_classifier"), tokenizer)


@pytest.fixture(scope="module")
def signatures(find):
    return heads.functions_of(find, heads.TAGS_LENGTH, traced=True)


def entries(outputs):
    """The answers in a SavedModel's outputs, in the form of Python's."""
    values = {name: value.numpy().tolist() for name, value in outputs.items()}
    joined = "num_entities" in values
    counts = values.pop("num_entities" if joined else "num_words")
    names = ["entities" if joined else "tags", "scores", "words", "starts", "ends"]
    assert values.keys() == set(names)
    columns = [values[name] for name in names]
    rows = []
    for i, count in enumerate(counts):
        row = list(zip(*(column[i] for column in columns), strict=True))
        assert set(row[count:]) <= {(b"", 0.0, b"", 0, 0)}
        rows.append(row[:count])
    return rows


def check(find, signatures, texts):
    """Compares all signatures that take strings with Python."""
    for name, aggregate in (("serving_default", True), ("tag", False)):
        got = entries(signatures[name](text=tf.constant(texts, tf.string)))
        expected = find(texts, aggregate=aggregate)
        for a, b in zip(got, expected, strict=True):
            assert [(x[0].decode(), x[2].decode(), *x[3:]) for x in a] == [
                (x["entity"], x["word"], x["start"], x["end"]) for x in b
            ]
            scores = [x["score"] for x in b]
            np.testing.assert_allclose([x[1] for x in a], scores, atol=1e-6)
    words = [[row["word"] for row in rows] for rows in expected]
    check_words(find, signatures, words)


def check_words(find, signatures, words):
    width = max(map(len, words))
    padded = [row + ["not read"] * (width - len(row)) for row in words]
    got = signatures["words"](
        words=tf.reshape(tf.constant(padded, tf.string), [len(words), width]),
        num_words=tf.constant([*map(len, words)], tf.int32),
    )
    assert got.keys() == {"tags", "scores"}
    for i, rows in enumerate(find(words, aggregate=False)):
        tags = [tag.decode() for tag in got["tags"][i].numpy()]
        missing = width - len(rows)
        assert tags == [row["entity"] for row in rows] + [""] * missing
        scores = [row["score"] for row in rows] + [0] * missing
        np.testing.assert_allclose(got["scores"][i], scores, atol=1e-6)


def test_equals_python(find, signatures):
    names = {"serving_default", "tag", "words", "tokens", "embed", "embed_layer"}
    assert signatures.keys() == names
    check(find, signatures, TEXTS)
    for text in TEXTS[1:3]:
        check(find, signatures, [text])
    check_words(find, signatures, [["a", "", "\u0301", " b c "], [], ["w" * 5000]])
    assert len({row["entity"] for row in find(TEXTS[0], aggregate=False)}) > 1


CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("aB .,-\0\n€")


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.lists(st.text(CHARACTERS), min_size=1, max_size=4))
def test_any_text_equals_python(find, signatures, texts):
    check(find, signatures, texts)


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.binary(max_size=12))
@hypothesis.example(b"a\xff\xfeb \xc3(\xe2\x82 x \xf0\x9f\x98 \xed\xa0\x80 \xc0\xaf y")
def test_any_bytes_equal_python(find, signatures, text):
    check(find, signatures, [text])


def test_other_labels_and_byte_bpe(byte_bpe):
    labels = ["O", "B", "I"]
    model = AlbertTokenClassifier(tiny.CONFIG, num_labels=3, seed=7)
    model.labels, model.max_seq_length = labels, heads.TAGS_LENGTH
    find = TokenClassifier(model, byte_bpe)
    check(find, heads.functions_of(find, heads.TAGS_LENGTH), TEXTS)


SCHEMES = [
    heads.TAGS,
    ["N", "V", "O"],
    ["O", "B", "I"],
    ["LABEL_0", "LABEL_1"],
    ["B", "I", "O"],
    [*(f"{p}-{t}" for t in ("X", "Y-Z") for p in "BIESLU"), "O"],
    ["I-X", "B-_", "L", ".", "O", "odd"],
]


@hypothesis.settings(max_examples=100)
@hypothesis.given(st.data())
def test_entities_are_those_of_python(data):
    labels = data.draw(st.sampled_from(SCHEMES))
    row = st.lists(st.integers(0, len(labels) - 1), max_size=9)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    flat = np.array([tag for row in rows for tag in row], np.int32)
    scores = np.linspace(0.1, 1, len(flat), dtype=np.float32)
    splits = np.cumsum([0, *map(len, rows)])
    tables = iob.entity_tables(labels)
    got = tags.entities(tables, *map(tf.constant, (flat, scores, splits)))
    kinds = [kind.decode() for kind in got.kinds.numpy()]
    found = list(zip(kinds, got.firsts.numpy(), got.lasts.numpy(), strict=True))
    for i, row in enumerate(rows):
        expected = iob.entities([labels[tag] for tag in row])
        start = splits[i]
        mine = found[got.splits[i] : got.splits[i + 1]]
        assert mine == [(kind, a + start, b + start) for kind, a, b in expected]
    means = [scores[a : b + 1].mean() for _, a, b in found]
    np.testing.assert_allclose(got.scores, means, atol=1e-6)


def test_a_long_text_is_tagged_in_steps(find, signatures):
    text = "Anna Seghers lived in Mainz . " * (row_steps.ROWS * 3)
    check(find, signatures, [text, "a"])


def test_a_bad_text_does_not_harm_its_mates(find, signatures):
    good = "Anna Seghers lived in Mainz."
    huge = [b"word " * 40_000, b"?" * 100_000, b"\xff" * 100_000, b"!a" * 50_000]
    got = entries(signatures["tag"](text=tf.constant([good, *huge, good])))
    alone = entries(signatures["tag"](text=tf.constant([good])))[0]
    for row in (got[0], got[-1]):
        assert [x[0] for x in row] == [x[0] for x in alone]
        scores = [x[1] for x in alone]
        np.testing.assert_allclose([x[1] for x in row], scores, atol=1e-6)
    # The first 64 KiB of a text are read.
    assert len(got[1]) == -(-(1 << 16) // 5)
    assert len(got[2]) == 1
    assert got[3] == []
    words = tf.constant([["a", "b"]] * 4)
    counts = tf.constant([-3, 1, 2, 99])
    tags = signatures["words"](words=words, num_words=counts)["tags"].numpy()
    assert (tags != b"").sum(1).tolist() == [0, 1, 2, 2]


def test_tokens_and_nothing(find, signatures, tokenizer):
    ids = [tokenizer.cls_id, *tokenizer.encode("Anna lived"), tokenizer.sep_id]
    got = signatures["tokens"](
        token_ids=tf.constant([ids + [7]]),
        lengths=tf.constant([len(ids)]),
        segment_ids=tf.zeros([1, len(ids) + 1], tf.int32),
    )
    rows = find("Anna lived", aggregate=False)
    first = got["probabilities"].numpy()[0, 1].max()
    assert first == pytest.approx(rows[0]["score"], abs=1e-6)
    assert got["logits"].shape == (1, len(ids) + 1, 5)
    none = signatures["serving_default"](text=tf.constant([], tf.string))
    assert none["entities"].shape == (0, 0)
    assert none["num_entities"].shape == (0,)
