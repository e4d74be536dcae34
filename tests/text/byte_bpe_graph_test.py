"""The in-graph byte-level BPE gives the ids of the tokenizers library."""

import json
import pathlib

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.errors import UsageError
from albert_tf.text import byte_bpe_file
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.train import train_tokenizer

tokenizers = pytest.importorskip("tokenizers")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tokenization"
TEXTS = [item["text"] for item in json.loads((GOLDEN / "strings.json").read_text())]
DATA = train_tokenizer(TEXTS * 3, model_type="byte_bpe", vocab_size=800, progress=False)
BPE = ByteBPETokenizer(DATA)
# White space of all kinds, contractions, digits, symbols, what is repeated.
PIECES = [*" \t\n\r\x0b\x0c\x00\x85\xa0\u2003\u3000", *"abcAB019'.-!é中😀\ufdd0\u0301"]
PIECES += [
    "'s",
    "'ll",
    "'S",
    "the",
    " the",
    "aaa",
    "  ",
    "\n\n",
    "½",
    "²",
    "Ⅷ",
    "\u200b",
]


def _variant(**settings) -> ByteBPETokenizer:
    content = json.loads(DATA)
    content["pre_tokenizer"] |= settings
    return ByteBPETokenizer(json.dumps(content).encode())


VARIANTS = [
    BPE,
    _variant(add_prefix_space=True),
    _variant(use_regex=False),
]
RENAMED = ByteBPETokenizer(DATA.replace(b"[MASK]", b"<mask>"))


@pytest.mark.parametrize("tokenizer", VARIANTS)
def test_known_strings(tokenizer):
    assert tokenizer(TEXTS).to_list() == tokenizer.encode_batch(TEXTS)
    assert tokenizer(tf.constant(TEXTS[3])).numpy().tolist() == tokenizer.encode(
        TEXTS[3]
    )


@given(
    st.lists(
        st.one_of(
            st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
            st.text(max_size=30),
        ),
        max_size=5,
    ),
    st.sampled_from(VARIANTS),
)
@example(["", "a" * 3000, " " * 1000 + "x", "\n \n x \n"], BPE)
def test_any_strings(texts, tokenizer):
    texts = [
        text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        for text in texts
    ]
    made = tokenizer.graph(tf.constant(texts, tf.string, [len(texts)]))
    assert made.dtype == tf.int32 and made.shape.rank == 2
    assert made.to_list() == tokenizer.encode_batch(texts)


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["[MASK]", "<mask>", *PIECES]) | st.text(max_size=4),
            max_size=12,
        ).map("".join),
        max_size=4,
    ),
    st.sampled_from([*VARIANTS, RENAMED]),
)
@example(["", "[MASK]", " [MASK]  [MASK]\u3000\x1c[MASK] x", "a \x1c [MASK]'s"], BPE)
@example(["[MASK] <mask>", "<mask[MASK]<ma[MASK]sk>"], RENAMED)
def test_masks_in_any_text(texts, tokenizer):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    made = tokenizer.graph.tokenize_masked(
        tf.constant(texts, tf.string, [len(texts)]),
        tokenizer.id_to_token(tokenizer.mask_id),
        tokenizer.mask_id,
    )
    assert made.dtype == tf.int32 and made.shape.rank == 2
    assert made.to_list() == [tokenizer.encode_masked(text) for text in texts]


@given(st.binary(max_size=20))
@example(b"\xff\xfe abc\xff")
@example(b"\xe4\xb8 x\xf0\x9f\x98")
def test_any_bytes(data):
    assert BPE.graph([data]).to_list() == [BPE.encode(data)]


def test_the_alphabet_is_the_librarys():
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = byte_bpe_file.byte_alphabet()
    assert sorted(alphabet) == sorted(level.alphabet())
    for text in ("\x00 ~\n", "é", "中", "😀"):
        shown = "".join(alphabet[octet] for octet in text.encode())
        assert level.pre_tokenize_str(text)[0][0] == shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(dropout=0.1), "model.dropout 0.1"),
        (lambda c: c["model"].update(ignore_merges=True), "model.ignore_merges True"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "normalizer NFC"),
        (
            lambda c: c["model"]["merges"].reverse(),
            "merges that use results of later",
        ),
        (lambda c: c["model"]["vocab"].pop("\u0100"), "no token for byte 0"),
        (
            lambda c: c["added_tokens"].append(
                c["added_tokens"][0] | {"id": 800, "content": "yes", "special": False}
            ),
            "added token 'yes'",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(change, message):
    content = json.loads(DATA)
    change(content)
    tokenizer = ByteBPETokenizer(json.dumps(content).encode())
    with pytest.raises(UsageError, match=message):
        tokenizer(["a"])
