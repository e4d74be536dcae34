"""`TokenClassifier` on small models."""

import numpy as np
import pandas as pd
import pytest

from albert_tf.errors import UsageError
from albert_tf.inference.token_classifier import TokenClassifier, split_words
from albert_tf.models.classifiers import AlbertTokenClassifier
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1)
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXT = "Anna Seghers, a writer, lived in Mainz. " * 3


def make(tokenizer, labels=LABELS):
    model = AlbertTokenClassifier(CONFIG, num_labels=len(labels), seed=7)
    model.labels = labels
    return TokenClassifier(model, tokenizer)


@pytest.fixture(scope="module")
def find(tokenizer):
    return make(tokenizer)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n", []),
        ("Bonn.", ["Bonn", "."]),
        ("(U.S.-based)", ["(", "U.S.-based", ")"]),
        ("don't stop... now!?", ["don't", "stop", "...", "now", "!", "?"]),
        ("a\u00a0b\u3000c", ["a", "b", "c"]),
        ("हिन्दी है।", ["हिन्दी", "है", "।"]),
        ("€5 -- ok", ["€", "5", "--", "ok"]),
    ],
)
def test_split_words(text, words):
    assert [text[a:b] for a, b in split_words(text)] == words


def test_every_word_gets_a_tag(find):
    """Also in a text of several rows, as if its words had been given."""
    rows = find(TEXT, aggregate=False)
    words = [TEXT[a:b] for a, b in split_words(TEXT)]
    assert [row["word"] for row in rows] == words
    assert all(TEXT[row["start"] : row["end"]] == row["word"] for row in rows)
    assert len({row["entity"] for row in rows}) > 1
    given = find(words, aggregate=False, is_split_into_words=True)
    assert [row["entity"] for row in given] == [row["entity"] for row in rows]
    assert [row["start"] for row in given] == list(range(len(words)))
    assert find([words], aggregate=False) == [given]


@pytest.mark.parametrize("labels", [["O", "N", "V"], ["O", "PER", "LOC"]])
def test_words_outside_are_left_out(tokenizer, labels, monkeypatch):
    find = make(tokenizer, labels)

    class Found:
        tags = [[find.task.labels[i] for i in (0, 2, 0)]]
        scores = [np.ones(3)]

    monkeypatch.setattr(find, "answers", lambda examples: Found)
    assert [row["entity"] for row in find("in Mainz .")] == labels[2:]
    assert len(find("in Mainz .", aggregate=False)) == 3


def test_entities_join_words(find, monkeypatch):
    class Found:
        tags = [["B-PER", "I-PER", "O", "I-LOC", "O"]]
        scores = [np.array([0.5, 0.7, 1, 0.9, 1], np.float32)]

    monkeypatch.setattr(find, "answers", lambda examples: Found)
    score = pytest.approx
    text = "Anna  Seghers in Mainz."
    assert find(text) == [
        dict(entity="PER", score=score(0.6), word="Anna  Seghers", start=0, end=13),
        dict(entity="LOC", score=score(0.9), word="Mainz", start=17, end=22),
    ]
    words = ["Anna", "Seghers", "in", "Mainz", "."]
    assert find([words])[0] == [
        dict(entity="PER", score=score(0.6), word="Anna Seghers", start=0, end=2),
        dict(entity="LOC", score=score(0.9), word="Mainz", start=3, end=4),
    ]


def test_tags_that_mark_no_entities(tokenizer):
    tag = make(tokenizer, ["NOUN", "VERB", "X"])
    assert [row["word"] for row in tag("one two")] == ["one", "two"]


def test_several_texts(find):
    both = find(["one two", TEXT, ""], aggregate=False)
    assert len(both) == 3
    assert [row["word"] for row in both[0]] == ["one", "two"]
    assert both[2] == []
    assert find([]) == []
    assert find(["", " "]) == find([[], []]) == [[], []]
    assert find("") == find([], is_split_into_words=True) == []
    assert find("a b", aggregate=False)[0]["score"] == pytest.approx(
        find(b"a b", aggregate=False)[0]["score"]
    )


def test_words_without_tokens(find):
    rows = find(
        ["a", "", "\u0301", "w" * 5000], aggregate=False, is_split_into_words=True
    )
    assert [row["word"] for row in rows] == ["a", "", "\u0301", "w" * 5000]


def test_refuses(find):
    for given in (None, 3, {"a": "b"}, pd.DataFrame({"text": ["a"]})):
        with pytest.raises(UsageError, match="texts must be a list, received"):
            find(given)
    with pytest.raises(UsageError, match=r"texts\[0\]\[1\] must be .* received 3"):
        find([["a", 3]])
    with pytest.raises(UsageError, match=r"texts\[1\] must be .*, received \['b'"):
        find(["a", ["b"]])
