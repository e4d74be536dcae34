"""Sentence splitting in several languages."""

import pytest

from albert_tf.data.corpus.sentences import check_language, split_sentences
from albert_tf.errors import UsageError


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
def test_splits(language, text, expected):
    assert split_sentences(text, language) == expected


def test_only_white_space_is_lost():
    text = "One. (Two!) Three...\u00a0four? 'Five' e.g. six; seven.\n\nEight"
    joined = "".join(split_sentences(text)).replace(" ", "")
    assert joined == "".join(text.split())


def test_a_wrong_language_is_refused():
    with pytest.raises(UsageError, match="language: .*received 'English!'"):
        check_language("English!")
