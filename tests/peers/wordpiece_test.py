"""WordPiece beside transformers' tokenizer and TensorFlow Text's operation."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.text.normalization import to_unicode
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.text import kinds
from tests.tiny import TEXT

pytestmark = pytest.mark.peers

# Letters and marks of many scripts, white space, controls, unassigned, emoji.
_BLOCKS = [(0, 0x250), (0x370, 0x530), (0x5D0, 0x700), (0x900, 0x980), (0x1E00, 0x2070)]
_BLOCKS += [(0x2150, 0x2190), (0x3000, 0x3100), (0x4E00, 0x4E80), (0xAC00, 0xAC80)]
_BLOCKS += [(0xF900, 0xF980), (0xFE00, 0x10000), (0x1F300, 0x1F700), (0x20000, 0x20040)]
LETTERS = [chr(c) for first, last in _BLOCKS for c in range(first, last)]


def lines() -> list[str]:
    """Returns 10,000 lines: prose as it is and distorted, and random strings."""
    draw = random.Random(11)
    prose = list(filter(str.strip, TEXT.read_text().splitlines()))
    found = [*kinds.TEXTS, *kinds.HARD]
    while len(found) < 10_000:
        line = draw.choice(prose)
        kind = draw.randrange(5)
        if kind == 1:
            line = draw.choice([line.upper(), line.title(), line.replace(" ", "")])
        elif kind == 2:  # accents, controls and ideographs in the middle of words
            chars = [c + draw.choice("\u0301\u200b\xad\x07中.\u3000") for c in line]
            line = "".join(x if draw.random() < 0.2 else x[0] for x in chars)
        elif kind == 3:
            line = "".join(draw.choices(LETTERS, k=draw.randrange(40)))
        elif kind == 4:
            line = "".join(draw.choices(kinds._PIECES, k=draw.randrange(20)))
        found.append(line)
    return [*map(to_unicode, found)]


# Every tenth line, others with each setting; all of them in `make test-broad`.
@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.broad)])
@pytest.mark.parametrize("kind", kinds.WORDPIECE)
def test_ids_and_offsets_of_10_000_lines(kind, step):
    transformers = pytest.importorskip("transformers")
    ours = kinds.WORDPIECE[kind]
    library = transformers.BertTokenizerFast(
        vocab=str(kinds.WORDPIECE_FILE),
        do_lower_case=ours.do_lower_case,
        strip_accents=not ours.keep_accents,
        tokenize_chinese_chars=ours.tokenize_chinese_chars,
    ).backend_tokenizer
    library.encode_special_tokens = True
    texts = lines()[[*kinds.WORDPIECE].index(kind) % step :: step]
    assert len(texts) >= 10_000 // step
    for first in range(0, len(texts), 1000):
        some = texts[first : first + 1000]
        theirs = library.encode_batch(some, add_special_tokens=False)
        graph = ours.graph_offsets(tf.constant(some))
        columns = [x.to_list() for x in (graph.ids, graph.starts, graph.ends)]
        rows = zip(some, theirs, *columns, strict=True)
        for text, encoded, ids, starts, ends in rows:
            places = [list(pair) for pair in zip(starts, ends, strict=True)]
            assert ids == encoded.ids, ascii(text)
            assert places == [list(pair) for pair in encoded.offsets], ascii(text)
            python = ours.encode_with_offsets(text)
            assert np.array_equal(python, [ids, starts, ends]), ascii(text)
            assert ours.encode(text) == ids, ascii(text)


@pytest.mark.parametrize(
    ("lower", "text", "ours", "theirs"),
    [
        (True, "difﬁcult", "[UNK]", "dif ##fic ##ul ##t"),
        (True, "你，", "你 ，", "你 ,"),
        (True, "ß", "ß", "s ##s"),
        (True, "a\0b", "ab", "a b"),
        (False, "a\xadb", "ab", "a b"),
        (False, "a\ufffdb", "ab", "[UNK]"),
        (False, "a\ue000b", "ab", "[UNK]"),
        (False, "é" * 51, "é" + " ##é" * 50, "[UNK]"),
    ],
)
def test_where_the_operation_of_tensorflow_text_differs(lower, text, ours, theirs):
    """The strings of docs/fidelity.md; BERT's tokenizer is the other two's model."""
    text_ops = pytest.importorskip("tensorflow_text")
    tokenizer = WordPieceTokenizer(kinds.WORDPIECE_FILE, lower)
    operation = text_ops.FastBertTokenizer(
        [*tokenizer.vocabulary],
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=lower,
    )
    ids = operation.tokenize([text]).to_list()[0]
    assert " ".join(map(tokenizer.id_to_token, ids)) == theirs
    assert " ".join(tokenizer.tokens(text)) == ours
