"""A tokenizer of every kind, and strings that are hard for some of them."""

import io
import json
from collections.abc import Callable

import sentencepiece
import tokenizers
from hypothesis import strategies as st

from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.normalization import to_unicode
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.tiny import GOLDEN, SPIECE

MODEL = SPIECE.read_bytes()
STRINGS = json.loads((GOLDEN / "tokenization/strings.json").read_text())
TEXTS = [item["text"] for item in STRINGS]
BPE = train_tokenizer(TEXTS * 3, model_type="byte_bpe", vocab_size=800, progress=False)


def as_tensor(texts: list[str | bytes]):
    """Returns strings for a graph; lone surrogates are spaces."""
    import tensorflow as tf

    texts = [t if isinstance(t, bytes) else to_unicode(t).encode() for t in texts]
    return tf.constant(texts, tf.string, [len(texts)])


def bpe(change: Callable[[dict], object] = lambda content: None) -> ByteBPETokenizer:
    """Returns the byte-level BPE, with another content of its file."""
    content = json.loads(BPE)
    change(content)
    return ByteBPETokenizer(json.dumps(content).encode())


def trained(sentences: list[str], vocab_size: int, **options) -> bytes:
    """Returns a small SentencePiece model with ALBERT's special tokens."""
    model = io.BytesIO()
    given = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 0}
    given |= {"unk_id": 1, "bos_id": -1, "eos_id": -1, "vocab_size": vocab_size}
    given |= {"hard_vocab_limit": False, "minloglevel": 2, **options}
    train = sentencepiece.SentencePieceTrainer.train
    train(sentence_iterator=iter(sentences), model_writer=model, **given)
    return model.getvalue()


def normalizing_bpe() -> ByteBPETokenizer:
    """A byte-level BPE whose file strips accents and trims offsets."""
    library = tokenizers.Tokenizer.from_buffer(BPE)
    names = tokenizers.normalizers
    library.normalizer = names.Sequence([names.NFD(), names.StripAccents()])
    library.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    return ByteBPETokenizer(library.to_str().encode())


# Spells unknown characters in bytes.
BYTES = trained(["hello world of 1990, the cafe"] * 20, 310, byte_fallback=True)
SENTENCEPIECE = {
    "lower": AlbertTokenizer(MODEL),
    "cased": AlbertTokenizer(MODEL, do_lower_case=False),
    "accents": AlbertTokenizer(MODEL, keep_accents=True),
    "no_rule": AlbertTokenizer(MODEL, digit_comma_rule=False),
    "bytes": AlbertTokenizer(BYTES),
}
WORDPIECE_FILE = GOLDEN / "wordpiece/vocab.txt"
WORDPIECE = {
    "wordpiece": WordPieceTokenizer(WORDPIECE_FILE),
    "wordpiece_cased": WordPieceTokenizer(WORDPIECE_FILE, do_lower_case=False),
    "wordpiece_mixed": WordPieceTokenizer(
        WORDPIECE_FILE, keep_accents=True, tokenize_chinese_chars=False
    ),
}
BYTE_BPE = {
    "bpe": bpe(),
    "bpe_prefix": bpe(lambda c: c["pre_tokenizer"].update(add_prefix_space=True)),
    "bpe_whole": bpe(lambda c: c["pre_tokenizer"].update(use_regex=False)),
    "bpe_renamed": ByteBPETokenizer(BPE.replace(b"[MASK]", b"<mask>")),
}
ALL = SENTENCEPIECE | BYTE_BPE | WORDPIECE
# Characters that become several, none, or others.
ODD = "éé\u0301⑩½ﬁ㍿İΣς\u0300\u20e3\u200b\ufeff\x00\x1c\u00a0\u3000\u00a8한ᄒ☃😀\ud800"
# White space of all kinds, contractions, digits, symbols, what is repeated.
_PIECES = [*" \t\n\r\x0b\x0c\x00\x1c\x85\xa0\u2003\u3000", *"abcAB019,'.-!é中😀\ufdd0"]
_PIECES += [*"\u0301\u200b½²ⅧΣς", "'s", "'ll", "'S", "the", " the", "aaa", "  "]
_PIECES += ["\n\n", "[MASK]", "<mask>", *ODD]
# Any text, and texts of the characters above.
TEXT = st.text(max_size=30) | st.lists(st.sampled_from(_PIECES)).map("".join)
HARD = [
    "",
    " \n ",
    "  hello  world ",
    "1990, 1990,",
    "½ ﬁ \u0301a \u0301 b\u0301\u0323\u0301 \u0301",
    "[MASK]<pad> ΑΣ. ΟΔΟΣ",
    "a\0b \ufeffbom \ufffe \u200b\u2581x\u2581",
    "İİ ㌀ ﷺ 한국 ᄒ😀",
    # SentencePiece's own normalization changes characters of these pieces.
    "⑩, 1⑩, ⑲⑨0,",
    "\uff11\uff0c \uff11\uff19\uff19\uff10,",
    "x 19\x0190, y\x01 \x011990\x01,\x01",
    "x\u25813, \u25813, \u2581 1990, x\u2581\u25811990,",
    *(f"{c}1990,{c} 1{c},{c}{c} A{c}" for c in ODD),
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
    "[CLS] [MASK] <pad> <mask>",
    "a" * 3000,
    " " * 1000 + "x",
    "\n \n x \n",
    b"a\0B",
    b"\0",
    b"HELLO\0WORLD\0",
    b"\xff",
    b"one\xff\xfetwo",
    b"x\xe2\x82",
    b"\xed\xa0\x80y",
    b"\xc0\xafz",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbfA",
    b"\xe2(\xa1",
    b" \xff a \xff ",
    b"\xe4\xb8 x\xf0\x9f\x98",
]
MASKED = [
    *["[MASK]", "[MASK][MASK] [MASK]", "x [MASK].", "x [MASK] .", "un[MASK]able"],
    *["[MASK]\u3000y", "[MASK]\x1cy", "[MASK]\u0301y", "[MASK]\u0301", "[MASK]\0y"],
    *["[MASK]中", "[MASK]☃", "[MASK]1990, [MASK]2,", "ΑΣ[MASK]Σ", "[MASK]'s"],
    *["[MAS[MASK]K]", "[mask] [MASK", b"a\xff[MASK]\xff.", b"[MASK]\xffy"],
    *[" [MASK]  [MASK]\u3000\x1c[MASK] x", "a \x1c [MASK]'s"],
    *["[MASK] <mask>", "<mask[MASK]<ma[MASK]sk>"],
]
