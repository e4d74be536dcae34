"""The graph says of the same characters as Python that a token comes from them."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.errors import UsageError
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.normalization import to_unicode
from albert_tf.text.offsets_graph import GraphOffsets, TokensWithOffsets
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.text.offsets_test import BPE, ODD, TEXT, byte_fallback

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tokenization"
MODEL = (GOLDEN / "spiece.model").read_bytes()
TOKENIZERS = {
    "lower": AlbertTokenizer(MODEL),
    "cased": AlbertTokenizer(MODEL, do_lower_case=False),
    "accents": AlbertTokenizer(MODEL, keep_accents=True),
    "no_rule": AlbertTokenizer(MODEL, digit_comma_rule=False),
    "bytes": AlbertTokenizer(byte_fallback()),
}
FIXED = [
    "",
    " \n ",
    "  hello  world ",
    "In 1990, 1,204 x1990,",
    "1990, 1990,",
    "½ ﬁ \u0301a \u0301 b\u0301\u0323\u0301 \u0301",
    "[MASK]<pad> ΑΣ. ΟΔΟΣ",
    "a\0b \ufeffbom \ufffe \u200b\u2581x\u2581",
    "İİ ㌀ ﷺ 한국 ᄒ😀",
    "\x1c\x85 x \u3000\u00a0y\u2028",
    # SentencePiece's own normalization changes characters of these pieces.
    "⑩, 1⑩, ⑲⑨0,",
    "\uff11\uff0c \uff11\uff19\uff19\uff10,",
    "x 19\x0190, y\x01 \x011990\x01,\x01",
    "x\u25813, \u25813, \u2581 1990, x\u2581\u25811990,",
]


@pytest.fixture(scope="module", params=sorted(TOKENIZERS))
def pair(request):
    """A tokenizer, and the same with offsets as one graph."""
    tokenizer = TOKENIZERS[request.param]
    graph = GraphOffsets(tokenizer)
    spec = tf.TensorSpec([None], tf.string)
    return tokenizer, tf.function(graph.__call__, input_signature=[spec])


def assert_same(pair, texts: list[str | bytes]) -> None:
    tokenizer, graph = pair
    raw = [t if isinstance(t, bytes) else to_unicode(t).encode() for t in texts]
    found = graph(tf.constant(raw, tf.string))
    for i, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        columns = (found.ids, found.starts, found.ends)
        for want, got in zip(expected, columns, strict=True):
            np.testing.assert_array_equal(got[i], want, ascii(text))
        assert found.codes[i].numpy().tolist() == [ord(c) for c in to_unicode(text)]


def test_fixed_texts(pair):
    assert_same(pair, FIXED)
    golden = json.loads((GOLDEN / "strings.json").read_text())
    assert_same(pair, [item["text"] for item in golden])
    assert_same(pair, ["", "the cat", ""])


def test_no_texts(pair):
    found: TokensWithOffsets = pair[1](tf.constant([], tf.string))
    assert all(column.shape == (0, None) for column in found)


@given(texts=st.lists(TEXT, min_size=20, max_size=20))
@settings(max_examples=4)
@example(texts=[f"{c}1990,{c} 1{c},{c}{c} A{c}" for c in ODD])
def test_random_texts(pair, texts):
    assert_same(pair, texts)


@given(texts=st.lists(st.binary(max_size=12), min_size=20, max_size=20))
@settings(max_examples=4)
@example(
    texts=[b"caf\xc3", b"\xe2\x82x", b"\xed\xa0\x80y", b"x \xc0\xaf y", b"\xf0\x9f"]
)
@example(
    texts=[b"\xf4\x90\x80\x80z", b"\xff\xfe a", b"\xf0\x80\x80\x80", b"a\x80\x80b"]
)
def test_random_bytes(pair, texts):
    assert_same(pair, texts)


def test_refuses_byte_level_bpe():
    with pytest.raises(UsageError, match="SentencePiece model only, received ByteBPE"):
        GraphOffsets(ByteBPETokenizer(BPE))
