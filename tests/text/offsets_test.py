"""Where tokens come from in the raw text, for both tokenizers."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.text import offsets
from albert_tf.text.normalization import normalize_text, to_unicode
from tests.text.kinds import ALL, HARD, SENTENCEPIECE, TEXT, normalizing_bpe

TOKENIZERS = {**SENTENCEPIECE, "bpe": ALL["bpe"]}
TOKENIZERS["bpe_normalizing"] = normalizing_bpe()
NAMES = sorted(TOKENIZERS)


@pytest.mark.parametrize("name", NAMES)
def test_any_text(name):
    for text in HARD:
        if isinstance(text, str):
            assert_places_are_right(name, text)
    given(text=TEXT)(lambda text: assert_places_are_right(name, text))()


def assert_places_are_right(name, text):
    tokenizer = TOKENIZERS[name]
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids.tolist() == tokenizer.encode(text)
    assert {array.dtype for array in (ids, starts, ends)} == {np.dtype(np.int32)}
    assert len(ids) == len(starts) == len(ends)
    assert (starts >= 0).all() and (starts <= ends).all() and (ends <= len(text)).all()
    assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
    # All text but white space and what a model drops lies in some token.
    held = np.zeros(len(text), bool)
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        held[a:b] = True
    if name != "bpe_normalizing":
        lost = "".join(c for c, h in zip(to_unicode(text), held, strict=True) if not h)
        assert not tokenizer.encode(lost.strip()) or not ids.size


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126)))
@example(text="1990, and 1,204 (x2,)")
def test_plain_text_is_cut_into_its_tokens(name, text):
    tokenizer = TOKENIZERS[name]
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    is_bpe = name.startswith("bpe")
    space, expected = ("Ġ", text) if is_bpe else ("▁", text.rstrip())
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert "".join(text[a:b] for a, b in spans) == expected
    for i, (a, b) in zip(ids.tolist(), spans, strict=True):
        token = tokenizer.id_to_token(i)
        if i in tokenizer.special_ids or token.startswith("<0x"):
            continue
        part = text[a:b]
        if tokenizer.collapses_white_space:
            part = part.strip() if a == 0 else " " * (part[:1] == " ") + part.strip()
            part = part.lower() if tokenizer.do_lower_case else part
            token = token.removeprefix(space) if a == 0 else token
        assert part.replace(" ", space) == token


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [True, False])
@given(text=TEXT)
@example(text="İİ ΑΣ. ㌀")
def test_source_map_has_an_entry_for_every_character(lower, accents, text):
    text = to_unicode(text)
    normal = normalize_text(text, lower, accents)
    starts, ends = offsets.source_map(text, lower, accents)
    assert len(starts) == len(ends) == len(normal)
    assert (starts < ends).all()
    for char, a, b in zip(normal, starts.tolist(), ends.tolist(), strict=True):
        if char == " ":
            continue
        # Final sigma depends on the neighbours.
        part = normalize_text(text[a:b], lower, accents).replace("ς", "σ")
        assert char.replace("ς", "σ") in part


def spans(text: str, name: str = "lower") -> list[tuple[str, str]]:
    tokenizer = TOKENIZERS[name]
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    return [
        (tokenizer.id_to_token(i), text[a:b])
        for i, a, b in zip(ids.tolist(), starts, ends, strict=True)
    ]


def test_digit_comma_rule_splits_the_span():
    places = [("▁in", "In"), ("▁1990", " 1990"), (",", ","), ("▁it", " it")]
    assert spans("In 1990, it") == places


def test_raw_characters_stay_whole():
    assert spans("the cafe\u0301.")[-2:] == [("▁cafe", " cafe\u0301"), (".", ".")]
    assert spans("x ½") == [("▁x", "x"), ("▁1", " ½"), ("<unk>", "½"), ("2", "½")]
    places = [("▁hello", "  \n hello"), ("▁world", " \t\n world")]
    assert spans("  \n hello \t\n world  ") == places


def test_byte_level_tokens_of_one_character_share_it():
    text = "hello ☃"
    ids, starts, ends = TOKENIZERS["bpe"].encode_with_offsets(text)
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)][-2:] == ["☃"] * 2
    tokens = spans("a cafe\u0301 b", "bpe_normalizing")
    assert "".join(part for _, part in tokens) == "a cafe\u0301 b"


def test_bytes_are_counted_as_decoded():
    ids, starts, ends = TOKENIZERS["lower"].encode_with_offsets(b"caf\xc3\xa9 \xff bee")
    assert ids.tolist() == TOKENIZERS["lower"].encode(b"caf\xc3\xa9 \xff bee")
    assert ends[-1] == len("caf\u00e9 ? bee")


@pytest.mark.parametrize("name", ["lower", "bpe"])
def test_a_long_text(name):
    sentence = " the caf\u00e9 of 1990, \u2460 and."
    text = sentence * 8000
    ids, starts, ends = TOKENIZERS[name].encode_with_offsets(text)
    assert ids.tolist() == TOKENIZERS[name].encode(text)
    # The last token of the text and of the sentence before.
    assert ends[-1] == len(text)
    before = np.flatnonzero(ends == len(text) - len(sentence))
    assert ids[before[-1]] == ids[-1]
