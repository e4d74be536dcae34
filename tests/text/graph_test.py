"""Tokenizers in the graph: the same ids as in Python, for every string.

There is no string for which the two are known to differ: the graph's Unicode tables
come from Python's own, and the pinned SentencePiece breaks ties as TensorFlow Text's.
"""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.text import byte_bpe
from albert_tf.text.normalization import to_unicode
from tests.export import c_api
from tests.text import kinds
from tests.text.kinds import ALL, SENTENCEPIECE, as_tensor

LOWER = ALL["lower"]
SCALARS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


STRINGS = [tf.TensorSpec([None], tf.string)]
# Exported models have SentencePiece (tests/export/c_api_test.py).
SERVED = ("bpe", "wordpiece")


def assert_same(ids_of, tokenizer, texts):
    """Compares a tokenizer with its graph, also where `[MASK]` is a mask."""
    after_word = [tokenizer.after_word(to_unicode(text)) for text in texts]
    plain, masked = ids_of(as_tensor(texts))
    for found, encode, strings in (
        (plain, tokenizer.encode, [*texts, *after_word]),
        (masked, tokenizer.encode_masked, texts),
    ):
        assert found.dtype == tf.int32 and found.shape.as_list() == [len(strings), None]
        for text, ids in zip(strings, found.to_list(), strict=True):
            assert ids == encode(text), ascii(text)


def kinds_but(*broad):
    """Every kind, some of which another test shows by other means."""
    marked = {kind: pytest.param(kind, marks=pytest.mark.broad) for kind in broad}
    return pytest.mark.parametrize("kind", [marked.get(kind, kind) for kind in ALL])


# `test_offsets` compares the ids of these, too.
@kinds_but(
    "cased", "accents", "no_rule", "bpe", "bpe_renamed", "wordpiece", "wordpiece_cased"
)
def test_any_strings(kind):
    tokenizer, graph = ALL[kind], ALL[kind].graph

    @tf.function(input_signature=STRINGS, autograph=False)
    def ids_of(texts):
        plain = graph(tf.concat([texts, graph.after_word(texts)], 0))
        return plain, graph.tokenize_masked(texts)

    hard = [t for t in kinds.HARD if isinstance(t, str)]
    assert_same(ids_of, tokenizer, [*kinds.TEXTS, *kinds.HARD, *kinds.MASKED])
    assert_same(ids_of, tokenizer, [*map(str.upper, hard), *map(str.lower, hard)])
    assert_same(ids_of, tokenizer, [])
    one = kinds.TEXTS[3]
    assert tokenizer(one).numpy().tolist() == tokenizer.encode(one)

    @settings(max_examples=8)
    @given(st.lists(kinds.TEXT | st.binary(max_size=20), min_size=25, max_size=25))
    def any_texts(texts):
        assert_same(ids_of, tokenizer, texts)

    any_texts()


@pytest.mark.parametrize("kind", ["lower", "cased"])
def test_golden(kind):
    found = ALL[kind](tf.constant(kinds.TEXTS)).to_list()
    assert found == [item[f"google_{kind}"]["ids"] for item in kinds.STRINGS]


def assert_same_offsets(graph, tokenizer, texts):
    found = graph(as_tensor(texts))
    columns = (found.ids, found.starts, found.ends, found.codes)
    columns = [column.to_list() for column in columns]
    for text, *got, codes in zip(texts, *columns, strict=True):
        want = [column.tolist() for column in tokenizer.encode_with_offsets(text)]
        assert got == want, ascii(text)
        assert codes == [ord(c) for c in to_unicode(text)]


# tests/peers has offsets of every WordPiece.
@pytest.mark.slow
@kinds_but(
    *("lower", "accents", "bpe_whole", "bpe_renamed"),
    *("wordpiece_mixed", "wordpiece_cased"),
)
def test_offsets(kind):
    tokenizer = ALL[kind]
    graph = tf.function(tokenizer.graph_offsets, input_signature=STRINGS)
    assert_same_offsets(graph, tokenizer, [*kinds.TEXTS, *kinds.HARD])
    assert all(column.shape == (0, None) for column in graph(as_tensor([])))

    @settings(max_examples=8)
    @given(st.lists(kinds.TEXT | st.binary(max_size=12), min_size=20, max_size=20))
    def any_texts(texts):
        assert_same_offsets(graph, tokenizer, texts)

    any_texts()


@pytest.mark.parametrize("kind", ["lower", "cased", "accents"])
def test_normalization_of_every_character(kind):
    """Unicode version, combining class, NFKD, full lower case, white space."""
    texts = ["x" + "".join(SCALARS), *(f"A{c}b {c}{c}C " for c in SCALARS[:0x3100])]
    tokenizer = SENTENCEPIECE[kind]
    found = tokenizer.graph.normalize(as_tensor(texts)).numpy()
    assert [f.decode() for f in found] == [tokenizer.normalize(t) for t in texts]


@pytest.mark.slow
def test_normalization_of_every_character_beside_sigma():
    # Other planes have only ideographs, private characters and unassigned ones.
    planes = [c for c in SCALARS if ord(c) < 0x20000 or 0xE0000 <= ord(c) < 0xE0200]
    texts = [f"A{c}Σ{c}Β Σ{c} {c}Σ" for c in planes]
    found = LOWER.graph.normalize(as_tensor(texts)).numpy()
    assert [f.decode() for f in found] == [LOWER.normalize(t) for t in texts]


@pytest.mark.parametrize("kind", ["lower", "bpe"])
def test_only_vectors_of_strings(kind):
    with pytest.raises(UsageError, match=r"vector of strings, received \(1, 1\)"):
        ALL[kind]([["a"]])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries")
def test_saved_model_without_python(tmp_path):
    module, signatures = tf.Module(), {}
    for kind in SERVED:
        setattr(module, kind, ALL[kind].graph)

        def serve(text, graph=ALL[kind].graph):
            ids = graph(text)
            return {"ids": ids.to_tensor(), "lengths": ids.row_lengths()}

        spec = tf.TensorSpec([None], tf.string, name="text")
        signatures[kind] = tf.function(serve).get_concrete_function(spec)
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=signatures)
    texts = np.array([text.encode() for text in kinds.TEXTS], object)
    requests = [(kind, {"text": texts}) for kind in SERVED]
    for kind, found in zip(SERVED, c_api.ask(tmp_path / "m", requests)[0], strict=True):
        rows = zip(found["ids"].tolist(), found["lengths"], strict=True)
        ids = [row[:length] for row, length in rows]
        assert ids == ALL[kind].encode_batch(kinds.TEXTS)


def test_setting_a_seed_does_not_end_it():
    """It clears TensorFlow's cache of kernels."""
    before = LOWER.graph(["a b"]).to_list()
    keras.utils.set_random_seed(1)
    assert LOWER.graph(["a b"]).to_list() == before


def test_the_alphabet_is_the_librarys():
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = byte_bpe.byte_alphabet()
    assert sorted(alphabet) == sorted(level.alphabet())
    for text in ("\x00 ~\n", "é", "中", "😀"):
        shown = "".join(alphabet[octet] for octet in text.encode())
        assert level.pre_tokenize_str(text)[0][0] == shown


def add_token(content):
    new = {"id": 800, "content": "yes", "special": False, "single_word": True}
    content["added_tokens"].append(content["added_tokens"][0] | new)


def rename_byte(content):
    vocabulary = content["model"]["vocab"]
    vocabulary["zz"] = vocabulary.pop("\u0100")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(ignore_merges=True), "model.ignore_merges True"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "normalizer NFC"),
        (lambda c: c["model"]["merges"].reverse(), "merges that use results of later"),
        (rename_byte, "no token for byte 0"),
        (add_token, "added token 'yes': single_word"),
    ],
)
def test_what_byte_bpe_cannot_do_is_refused(change, message):
    with pytest.raises((UsageError, DataError), match=message):
        kinds.bpe(change)(["a"])
