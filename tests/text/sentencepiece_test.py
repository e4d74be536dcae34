"""The Python path of the tokenizer against the original's ids, and bad input."""

import io
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.text.normalization import normalize_text
from albert_tf.text.sentencepiece import AlbertTokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tokenization"
MODEL = GOLDEN / "spiece.model"
STRINGS = json.loads((GOLDEN / "strings.json").read_text())
LOWER = AlbertTokenizer(MODEL)
CASED = AlbertTokenizer(MODEL, do_lower_case=False)


@pytest.mark.parametrize("item", STRINGS, ids=lambda item: repr(item["text"])[:30])
def test_golden(item):
    text, lower, cased = item["text"], item["google_lower"], item["google_cased"]
    assert LOWER.encode(text) == lower["ids"]
    assert LOWER.encode(text.encode("utf-8")) == lower["ids"]
    assert LOWER.tokens(text) == lower["pieces"]
    assert CASED.encode(text) == cased["ids"]


def test_encode_batch_is_encode():
    texts = [item["text"] for item in STRINGS] + [b"1990, \xff", ""]
    for tokenizer in (LOWER, CASED):
        expected = [tokenizer.encode(text) for text in texts]
        assert tokenizer.encode_batch(texts) == expected
        ids, splits = tokenizer.encode_batch_flat(iter(texts))
        assert ids.dtype == np.int32 and splits.dtype == np.int64
        assert [
            ids[a:b].tolist() for a, b in zip(splits, splits[1:], strict=False)
        ] == (expected)
    assert LOWER.encode_batch([]) == []
    assert LOWER.encode_batch_flat([])[1].tolist() == [0]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (".a***?", ["▁", ".", "a", "**", "*", "?"]),
        ("?bbb#", ["▁", "?", "bb", "b", "#"]),
        ("'*666000", ["▁", "'", "*", "66", "6", "000"]),
    ],
)
def test_ties_are_broken_as_the_original_does(text, pieces):
    # SentencePiece 0.2.2 and 0.2.3 break them the other way round.
    assert LOWER.tokens(text) == pieces, sentencepiece.__version__


def test_attributes():
    ids = (LOWER.pad_id, LOWER.unk_id, LOWER.cls_id, LOWER.sep_id, LOWER.mask_id)
    assert ids == (0, 1, 2, 3, 4)
    assert LOWER.special_ids == [0, 1, 2, 3, 4]
    assert LOWER.vocab_size == 30000
    assert LOWER.sha256.startswith("fefb02b667a6c5c2")
    assert LOWER.id_to_token(4) == "[MASK]"
    assert LOWER.token_to_id("[MASK]") == 4
    assert LOWER.token_to_id("no such piece") == LOWER.unk_id
    with pytest.raises(UsageError, match="0 to 29999, received 30000"):
        LOWER.id_to_token(30000)


def test_options():
    assert LOWER.normalize("Été ﬁ") == "ete fi"
    keep = AlbertTokenizer(MODEL, keep_accents=True)
    assert keep.normalize("Été ﬁ") == "été ﬁ"
    raw = AlbertTokenizer(MODEL, digit_comma_rule=False)
    assert raw.tokens("In 1990, the") == ["▁in", "▁1990,", "▁the"]
    copy = AlbertTokenizer(MODEL.read_bytes(), **keep.get_config())
    assert copy.get_config() == keep.get_config()


def test_normalize_text():
    assert normalize_text("  A\u0085B\x1cC\u3000d ") == "a b c d"
    assert normalize_text("ΟΔΟΣ ΟΔΟΣ.") == "οδος οδος."
    assert normalize_text("İI") == "ii"
    assert normalize_text("1\ufe0f\u20e3") == "1\ufe0f\u20e3"
    assert normalize_text("É", do_lower_case=False) == "E"


def test_bytes_that_are_not_utf8_are_spaces():
    assert LOWER.encode(b"one\xff\xfetwo") == LOWER.encode("one two")
    assert LOWER.encode(b"one\xed\xa0\x80two\xe2\x82") == LOWER.encode("one two")
    assert LOWER.encode("one\ud800two") == LOWER.encode("one two")


def test_nul_hides_nothing():
    assert LOWER.encode("a\0Hello") == LOWER.encode(b"a\0Hello")
    assert LOWER.tokens("a\0Hello")[0] == "▁a"
    assert len(LOWER.encode("a\0Hello World\0")) > 4


def test_special_pieces_need_permission():
    text = "Paris is the [MASK] of [CLS] France."
    assert not set(LOWER.encode(text)) & set(LOWER.special_ids)
    ids = LOWER.encode(text, allow_special=("[MASK]",))
    assert ids.count(LOWER.mask_id) == 1 and LOWER.cls_id not in ids
    at = ids.index(LOWER.mask_id)
    assert ids[:at] == LOWER.encode("Paris is the")
    assert ids[at + 1 :] == LOWER.encode("of [CLS] France.")
    both = LOWER.encode(text, allow_special=("[MASK]", "[CLS]"))
    assert LOWER.cls_id in both and LOWER.mask_id in both
    with pytest.raises(UsageError, match="allow_special.*received mask"):
        LOWER.encode(text, allow_special=("mask",))


def test_text_after_a_special_piece_continues_the_word():
    def after(text):
        return [LOWER.id_to_token(i) for i in LOWER.encode(text, ("[MASK]",))]

    assert after("so [MASK].") == ["▁so", "[MASK]", "."]
    assert after("so [MASK] .") == ["▁so", "[MASK]", "▁", "."]
    assert after("[MASK]ing [MASK]") == ["[MASK]", "ing", "[MASK]"]
    assert after("[MASK][MASK]") == ["[MASK]", "[MASK]"]
    assert after("[MASK]") == ["[MASK]"]


def test_decode():
    ids = [LOWER.cls_id, *LOWER.encode("Hello, World"), LOWER.sep_id, LOWER.pad_id]
    assert LOWER.decode(ids) == "hello, world"
    assert LOWER.decode(np.array(ids), skip_special=False) == (
        "[CLS] hello, world [SEP] <pad>"
    )
    assert LOWER.decode([]) == ""
    assert "⁇" in LOWER.decode(LOWER.encode("你好"))
    with pytest.raises(UsageError, match="received -1"):
        LOWER.decode([-1])


def test_word_starts():
    starts = {LOWER.id_to_token(i): s for i, s in enumerate(LOWER.word_start_table())}
    assert LOWER.word_start_table().shape == (30000,)
    for piece in ("▁the", "▁", "(", ",", "-", "£", "–", "'", "0", "[CLS]"):
        assert starts[piece], piece
    for piece in ("ing", "**", "://", "];", "<pad>"):
        assert not starts[piece], piece
    tokens = LOWER.tokens("don't parameter-reduction")
    assert [(t, bool(starts[t])) for t in tokens] == [
        ("▁don", True), ("'", True), ("t", False),
        ("▁parameter", True), ("-", True), ("red", False), ("uction", False),
    ]  # fmt: skip


def test_word_starts_by_the_originals_words():
    punctuation = set('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
    letters = set("abcdefghijklmnopqrstuvwxyz")
    starts = LOWER.word_start_table()
    for i in range(5, LOWER.vocab_size):
        piece = LOWER.id_to_token(i)
        plain = all(c.lower() in letters | punctuation for c in piece)
        expected = piece[0] in "▁<" or piece in punctuation or not plain
        assert starts[i] == expected, piece


def test_digit_comma_rule_of_another_vocabulary():
    sentences = ["abc 7,d x7,d 7,7,7 ab7,d 87,d, 8 7 d x b"] * 30
    tokenizer = AlbertTokenizer(_train(sentences, 40))
    replaced = tokenizer.replacements
    assert replaced
    for i, ids in replaced.items():
        pieces = [tokenizer.id_to_token(k) for k in ids]
        assert "".join(pieces) == tokenizer.id_to_token(i)
        assert pieces[-1] == ","
    for text in ["7,7,7 ab7,d", "87,d x7,"]:
        assert "".join(tokenizer.tokens(text)) == "▁" + text.replace(" ", "▁")
        assert tokenizer.encode_batch([text, text]) == [tokenizer.encode(text)] * 2


def test_save(tmp_path):
    path = LOWER.save(tmp_path)
    assert path == str(tmp_path / "spiece.model")
    assert (tmp_path / "spiece.model").read_bytes() == MODEL.read_bytes()
    assert LOWER.save(tmp_path) == path  # the same content is no conflict
    other = tmp_path / "other.model"
    other.write_bytes(b"precious")
    with pytest.raises(UsageError, match="other.model: exists already"):
        LOWER.save(other)
    assert other.read_bytes() == b"precious"
    LOWER.save(other, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.model", "spiece.model"]


@pytest.mark.parametrize("content", [b"", b"no model\0\xff", MODEL.read_bytes()[:5000]])
def test_not_a_model(tmp_path, content):
    path = tmp_path / "bad.model"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad.model: not a SentencePiece model \(\d+"):
        AlbertTokenizer(path)


def test_not_an_albert_vocabulary():
    with pytest.raises(DataError, match=r"pieces is <pad>, \[CLS\], \[SEP\]$"):
        AlbertTokenizer(_train(["a b c d"] * 9, 9, pad_id=-1, control_symbols="[MASK]"))


def test_ids_come_from_the_model():
    data = _train(
        ["a b c d e f"] * 9, 18, unk_id=2, pad_id=0, bos_id=1, eos_id=-1,
        control_symbols=["[MASK]", "[SEP]", "[CLS]"],
    )  # fmt: skip
    tokenizer = AlbertTokenizer(data)
    assert (tokenizer.unk_id, tokenizer.mask_id, tokenizer.cls_id) == (2, 3, 5)
    assert tokenizer.special_ids == [0, 1, 2, 3, 4, 5]


def test_needs_no_tensorflow():
    code = (
        "import sys; from albert_tf.text.sentencepiece import AlbertTokenizer as T; "
        f"t = T({str(MODEL)!r}); t.encode('Hé, 1990,'); t.decode([9]); "
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.text())
@example("\ud800\0\u2581[CLS]")
def test_any_text(text):
    ids = LOWER.encode(text)
    assert all(0 <= i < LOWER.vocab_size for i in ids)
    assert not set(ids) & (set(LOWER.special_ids) - {LOWER.unk_id})
    assert LOWER.encode_batch([text, text]) == [ids, ids]
    LOWER.tokens(text)
    LOWER.decode(ids)


@given(st.binary())
def test_any_bytes(data):
    assert LOWER.encode_batch([data]) == [LOWER.encode(data)]


def _train(sentences, vocab_size, **options):
    model = io.BytesIO()
    defaults = {
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1,
        "split_by_unicode_script": False, "split_by_number": False,
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **{**defaults, **options},
    )
    return model.getvalue()
