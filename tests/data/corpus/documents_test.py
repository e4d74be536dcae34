"""Sentences in several languages; repeated documents are counted in bounded memory."""

import pytest

from albert_tf.data.corpus.documents import (
    DuplicateCounter,
    RawDocument,
    check_language,
    split_sentences,
)
from albert_tf.errors import UsageError


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            'Mr. Smith paid  $3.50.\n"Really?" he said. It was 3 p.m. then.',
            'Mr. Smith paid $3.50.|"Really?" he said.|It was 3 p.m. then.',
        ),
        ("de", "Das ist z. B. gut. Dr. Müller.", "Das ist z. B. gut.|Dr. Müller."),
        (
            "zh",
            "我来了。你呢？我说：“好的。”他走了！行",
            "我来了。|你呢？|我说：“好的。”|他走了！|行",
        ),
        ("ja", "今日は。元気？はい", "今日は。|元気？|はい"),
        ("hi", "मैं हूँ। तुम हो।", "मैं हूँ।|तुम हो।"),
        ("en", " \n\t ", ""),
        ("en", "no\u00a0end", "no end"),
    ],
)
def test_splits(language, text, expected):
    assert "|".join(split_sentences(text, language)) == expected


def test_a_wrong_language_is_refused():
    with pytest.raises(UsageError, match="language: .*received 'English!'"):
        check_language("English!")


def _kept(counter, names):
    documents = (RawDocument(0, k, [name, "x"], True) for k, name in enumerate(names))
    return [document.texts[0] for document in counter.filter(documents)]


def test_counts_and_drops_repeated_documents():
    names = [str(k % 300) for k in range(700)]
    counter = DuplicateCounter()
    assert _kept(counter, names) == names
    assert (counter.num_duplicates, counter.is_complete) == (400, True)
    assert _kept(DuplicateCounter(drop=True), names) == names[:300]


def test_what_is_said_beyond_its_capacity():
    names = [str(k) for k in range(9)]
    counter = DuplicateCounter(drop=True, max_remembered=5)
    assert _kept(counter, names[:5] * 2) == names[:5]
    assert counter.is_complete  # a repeated document needs no space
    assert _kept(counter, names[5:]) == names[5:]
    assert (counter.num_duplicates, counter.is_complete) == (5, False)
