"""The in-graph tokenizer: the same ids as the Python one, for every string.

There is no string for which the two are known to differ: the graph's Unicode tables
come from Python's own, and the pinned SentencePiece breaks ties as TensorFlow Text's.
"""

import json
import pathlib
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.errors import UsageError
from albert_tf.text.normalization import to_unicode
from albert_tf.text.sentencepiece import AlbertTokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tokenization"
MODEL = GOLDEN / "spiece.model"
STRINGS = json.loads((GOLDEN / "strings.json").read_text())
LOWER = AlbertTokenizer(MODEL)
CASED = AlbertTokenizer(MODEL, do_lower_case=False)
KEEP = AlbertTokenizer(MODEL, keep_accents=True)
PLAIN = AlbertTokenizer(MODEL, digit_comma_rule=False)
SCALARS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


def _bytes(texts):
    return [t if isinstance(t, bytes) else to_unicode(t).encode() for t in texts]


def _assert_same(tokenizer, texts):
    found = tokenizer(tf.constant(_bytes(texts)))
    assert found.dtype == tf.int32
    for text, ids in zip(texts, found.to_list(), strict=True):
        assert ids == tokenizer.encode(text), ascii(text)


@pytest.mark.parametrize("column", ["google_lower", "google_cased"])
def test_golden(column):
    tokenizer = {"google_lower": LOWER, "google_cased": CASED}[column]
    found = tokenizer(tf.constant([item["text"].encode() for item in STRINGS]))
    for item, ids in zip(STRINGS, found.to_list(), strict=True):
        assert ids == item[column]["ids"], ascii(item["text"])


@pytest.mark.parametrize("tokenizer", [LOWER, CASED, KEEP])
def test_normalization_of_every_character(tokenizer):
    """Unicode version, combining class, NFKD, full lower case, white space."""
    text = ["x" + "".join(SCALARS), *(f"A{c}b {c}{c}C " for c in SCALARS[:0x3100])]
    found = tokenizer.graph.normalize(tf.constant(_bytes(text))).numpy()
    for t, f in zip(text, found, strict=True):
        assert f.decode() == tokenizer.normalize(t)


@pytest.mark.slow
def test_normalization_of_every_character_beside_sigma():
    texts = [f"A{c}Σ{c}Β Σ{c} {c}Σ" for c in SCALARS]
    found = LOWER.graph.normalize(tf.constant(_bytes(texts))).numpy()
    assert [f.decode() for f in found] == [LOWER.normalize(t) for t in texts]


@pytest.mark.parametrize(
    "text",
    [
        "ΟΔΟΣ, ΣΑΣ Σ ΑΣ' Α'Σ. ΣΣ αΣβ \U0001d6ba ΑΣ\u0301 Β",  # final sigma
        "İSTANBUL ISTANBUL ı",  # no locale
        "1\ufe0f\u20e3 a\u0345 \u093c",  # combining class, not category
        "\u1dfa\u1df6 \U0001df00\U0001e030",  # young characters
        "Ａ１２３,４５６ ① ﷺ 각 각",
        "in 1990, 9, 5,,6 10,000,000 2010,2011,2012",
        "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000x\x0b\x0cy",
        "a***? 66666 bbb !!!! ----",  # ties
        "\ufeffbom \ufffe\uffff \ufffd",
        "ÀÉÎ naïve ǅ Ὀδυσσεύς ß ẞ",
    ],
)
def test_hard_strings(text):
    for tokenizer in (LOWER, CASED, KEEP, PLAIN):
        _assert_same(tokenizer, [text, text.upper(), text.lower()])


def test_nul_and_invalid_bytes():
    texts = [
        b"a\0B", b"\0", b"HELLO\0WORLD\0", b"\xff", b"one\xff\xfetwo", b"x\xe2\x82",
        b"\xed\xa0\x80y", b"\xc0\xafz", b"\xf4\x90\x80\x80", b"\xef\xbb\xbfA",
        b"\xe2(\xa1", b" \xff a \xff ", b"",
    ]  # fmt: skip
    for tokenizer in (LOWER, CASED, KEEP):
        _assert_same(tokenizer, texts)
    assert LOWER.decode(LOWER(tf.constant([b"HELLO\0WORLD"]))[0].numpy()).endswith(
        "world"
    )


@settings(max_examples=300)
@given(st.lists(st.text(), min_size=1, max_size=4))
@example(["Σ", "AΣ"])
def test_any_text(texts):
    for tokenizer in (LOWER, CASED, KEEP):
        _assert_same(tokenizer, texts)


@settings(max_examples=200)
@given(st.lists(st.binary(), min_size=1, max_size=4))
def test_any_bytes(texts):
    _assert_same(LOWER, texts)


@settings(max_examples=200)
@given(st.text(alphabet="abA69,.!?*'-_ \tΣσé\u0301<[]\0"))
def test_any_small_text(text):
    _assert_same(LOWER, [text])


MASKED = [
    "", "[MASK]", "[MASK][MASK] [MASK]", "x [MASK].", "x [MASK] .", "un[MASK]able",
    "[MASK]\u3000y", "[MASK]\x1cy", "[MASK]\u0301y", "[MASK]\u0301", "[MASK]\0y",
    "[MASK]中", "[MASK]☃", "[MASK]1990, [MASK]2,", "ΑΣ[MASK]Σ", "[MASK]'s",
    "[MAS[MASK]K]", "[mask] [MASK", b"a\xff[MASK]\xff.", b"[MASK]\xffy",
]  # fmt: skip


def _assert_same_masked(tokenizer, texts):
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    found = tokenizer.graph.tokenize_masked(
        tf.constant(_bytes(texts)), mask, tokenizer.mask_id
    )
    assert found.dtype == tf.int32
    for text, ids in zip(texts, found.to_list(), strict=True):
        assert ids == tokenizer.encode_masked(text), ascii(text)


@pytest.mark.parametrize("tokenizer", [LOWER, CASED, KEEP, PLAIN])
def test_masks(tokenizer):
    _assert_same_masked(tokenizer, MASKED)
    mask_id = tokenizer.mask_id
    assert tokenizer.encode_masked("a [MASK][MASK]").count(mask_id) == 2
    empty = tokenizer.graph.tokenize_masked(tf.zeros([0], tf.string), "[MASK]", mask_id)
    assert empty.shape.as_list() == [0, None]


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.just("[MASK]") | st.text(max_size=6), max_size=6).map("".join),
        min_size=1,
        max_size=4,
    )
)
def test_masks_in_any_text(texts):
    for tokenizer in (LOWER, CASED):
        _assert_same_masked(tokenizer, texts)


def test_shapes():
    empty = LOWER(tf.zeros([0], tf.string))
    assert empty.shape.as_list() == [0, None]
    one = LOWER("Hello world")
    assert one.numpy().tolist() == LOWER.encode("Hello world")
    with pytest.raises(UsageError, match="texts: expected one string or a vector"):
        LOWER([["a"]])


def test_saved_model_in_a_clean_process(tmp_path):
    module = tf.Module()
    module.tokenizer = LOWER.graph

    def serve(text):
        ids = module.tokenizer(text)
        return {"ids": ids.to_tensor(), "lengths": ids.row_lengths()}

    spec = tf.TensorSpec([None], tf.string, name="text")
    serve = tf.function(serve).get_concrete_function(spec)
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=serve)

    proto = saved_model_pb2.SavedModel.FromString(
        (tmp_path / "m" / "saved_model.pb").read_bytes()
    )
    graph_def = proto.meta_graphs[0].graph_def
    nodes = [
        *graph_def.node,
        *(n for f in graph_def.library.function for n in f.node_def),
    ]
    ops = {node.op for node in nodes}
    foreign = {op for op in ops if "entencepiece" in op or "UTF8" in op or "Py" in op}
    foreign |= {op for op in ops if op.startswith("TFText>")}
    assert foreign == {"SentencepieceOp", "SentencepieceTokenizeOp"}

    texts = [item["text"] for item in STRINGS]
    code = (
        "import json, sys, tensorflow as tf, tensorflow_text\n"
        f"f = tf.saved_model.load({str(tmp_path / 'm')!r}).signatures"
        "['serving_default']\n"
        "o = f(text=tf.constant([t.encode() for t in json.load(sys.stdin)]))\n"
        "print(json.dumps([r[:n] for r, n in zip(o['ids'].numpy().tolist(), "
        "o['lengths'].numpy())]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(texts), capture_output=True, text=True, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(done.stdout) == [item["google_lower"]["ids"] for item in STRINGS]


def test_tone_marks_and_viramas_are_kept_if_asked():
    texts = ["น้ำ ไม่ใช่", "हिन्दी क्या", "Café"]
    kept = [KEEP.normalize(text) for text in texts]
    assert kept == ["น้ำ ไม่ใช่", "हिन्दी क्या", "café"]
    assert KEEP.graph.normalize(texts).numpy().tolist() == [t.encode() for t in kept]
    assert KEEP(texts).to_list() == KEEP.encode_batch(texts)


def test_setting_a_seed_does_not_end_it():
    """It clears TensorFlow's cache of kernels."""
    graph = AlbertTokenizer(MODEL).graph
    before = graph(["a b"]).to_list()
    keras.utils.set_random_seed(1)
    assert graph(["a b"]).to_list() == before
