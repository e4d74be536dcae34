"""Tokenizers in Python against the original's ids and the library's; bad input."""

import json
import pickle
import shutil

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.text import byte_bpe
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.load import load_tokenizer
from albert_tf.text.normalization import normalize_text, to_unicode
from albert_tf.text.preprocessor import Preprocessor
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from tests.text import kinds
from tests.text.kinds import ALL
from tests.tiny import SPIECE

LOWER, CASED, BPE = ALL["lower"], ALL["cased"], ALL["bpe"]
BOTH = pytest.mark.parametrize("tokenizer", [LOWER, BPE], ids=["lower", "bpe"])


@pytest.mark.parametrize(
    "item", kinds.STRINGS, ids=lambda item: repr(item["text"])[:30]
)
def test_golden(item):
    text, lower, cased = item["text"], item["google_lower"], item["google_cased"]
    assert LOWER.encode(text) == LOWER.encode(text.encode()) == lower["ids"]
    assert LOWER.tokens(text) == lower["pieces"]
    assert CASED.encode(text) == cased["ids"]


def test_ids_are_the_library_s():
    library = tokenizers.Tokenizer.from_buffer(kinds.BPE)
    library.encode_special_tokens = True
    expected = [library.encode(t, add_special_tokens=False) for t in kinds.TEXTS]
    assert BPE.encode_batch(kinds.TEXTS) == [encoding.ids for encoding in expected]
    assert BPE.tokens(kinds.TEXTS[3]) == expected[3].tokens


@pytest.mark.parametrize("kind", ALL)
def test_encode_batch_is_encode(kind):
    tokenizer, texts = ALL[kind], [*kinds.TEXTS, b"1990, \xff", ""]
    expected = [tokenizer.encode(text) for text in texts]
    ids, splits = tokenizer.encode_batch_flat(iter(texts))
    assert ids.dtype == np.int32 and splits.dtype == np.int64
    pairs = zip(splits, splits[1:], strict=False)
    assert [ids[a:b].tolist() for a, b in pairs] == expected
    assert tokenizer.encode_batch([]) == []


@pytest.mark.parametrize("kind", ALL)
def test_special_tokens_mask(kind):
    tokenizer = ALL[kind]
    t = tokenizer
    # Unknown tokens are special, whatever the text is.
    text = [i for i in tokenizer.encode("the words of a text") if i != t.unk_id]
    row = [t.cls_id, *text, t.mask_id, t.unk_id, t.sep_id, t.pad_id]
    mask = [1, *[0] * len(text), 1, 1, 1, 1]
    found = tokenizer.special_tokens_mask(row)
    assert text and found.dtype == np.int32 and found.tolist() == mask
    batch = Preprocessor(tokenizer, 9)(["the words of a text", "text"])
    found = tokenizer.special_tokens_mask(batch["token_ids"])
    assert found.shape == (2, 9)
    padding, ends = 1 - batch["padding_mask"], np.isin(batch["token_ids"], [row[0]])
    assert (found >= padding).all() and (found >= ends).all() and not found.all()
    assert tokenizer.special_tokens_mask([]).shape == (0,)
    for wrong in ([t.vocab_size], [-1], [[1.5]], ["the"]):
        with pytest.raises(UsageError, match=f"integers from 0 to {t.vocab_size - 1}"):
            tokenizer.special_tokens_mask(wrong)
    with pytest.raises(UsageError, match="padded to one length"):
        tokenizer.special_tokens_mask([[1], [1, 2]])


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


@BOTH
def test_attributes(tokenizer):
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    assert [getattr(tokenizer, name) for name in names] == [0, 1, 2, 3, 4]
    assert tokenizer.special_ids == [0, 1, 2, 3, 4]
    size = tokenizer.vocab_size
    assert size == len(tokenizer.vocabulary) == (30000 if tokenizer is LOWER else 800)
    assert tokenizer.id_to_token(4) == "[MASK]" and tokenizer.token_to_id("[MASK]") == 4
    assert tokenizer.token_to_id("no such piece") == tokenizer.unk_id
    for wrong in (-1, size):
        with pytest.raises(UsageError, match=f"0 to {size - 1}, received {wrong}"):
            tokenizer.decode([wrong])
    assert LOWER.sha256.startswith("fefb02b667a6c5c2")


def test_options_and_normalization():
    assert LOWER.normalize("Été ﬁ") == "ete fi"
    assert ALL["accents"].normalize("Été ﬁ น้ำ क्या") == "été ﬁ น้ำ क्या"
    assert ALL["no_rule"].tokens("In 1990, the") == ["▁in", "▁1990,", "▁the"]
    assert normalize_text("  A\u0085B\x1cC\u3000d ") == "a b c d"
    assert normalize_text("ΟΔΟΣ ΟΔΟΣ.") == "οδος οδος."
    assert normalize_text("İI") == "ii"
    assert normalize_text("1\ufe0f\u20e3") == "1\ufe0f\u20e3"
    assert normalize_text("É", do_lower_case=False) == "E"


def test_invalid_bytes_are_spaces_and_nul_hides_nothing():
    assert LOWER.encode(b"one\xff\xfetwo") == LOWER.encode("one two")
    assert LOWER.encode(b"one\xed\xa0\x80two\xe2\x82") == LOWER.encode("one two")
    assert LOWER.encode("one\ud800two") == LOWER.encode("one two")
    assert LOWER.encode("a\0Hello") == LOWER.encode(b"a\0Hello")
    assert LOWER.decode(LOWER.encode("HELLO\0WORLD")).endswith("world")


def test_only_masks_are_special_in_a_text():
    def masked(tokenizer, text):
        return [tokenizer.id_to_token(i) for i in tokenizer.encode_masked(text)]

    for tokenizer in (LOWER, BPE):
        text = "the cat is [MASK] [CLS]"
        assert not set(tokenizer.encode(text)) & set(tokenizer.special_ids)
        first, last = tokenizer.encode("the cat is"), tokenizer.encode(" [CLS]")
        assert tokenizer.encode_masked(text) == [*first, tokenizer.mask_id, *last]
    assert masked(ALL["bpe_renamed"], "a[MASK]<mask>") == ["a", "<mask>", "<mask>"]
    assert masked(LOWER, "so [MASK].") == ["▁so", "[MASK]", "."]
    assert masked(LOWER, "so [MASK] .") == ["▁so", "[MASK]", "▁", "."]
    assert masked(LOWER, "[MASK]ing [MASK]") == ["[MASK]", "ing", "[MASK]"]


def test_decode():
    ids = [LOWER.cls_id, *LOWER.encode("Hello, World"), LOWER.sep_id, LOWER.pad_id]
    assert LOWER.decode(np.array(ids)) == "hello, world"
    assert LOWER.decode(ids, skip_special=False) == "[CLS] hello, world [SEP] <pad>"
    assert LOWER.decode([]) == ""
    assert "⁇" in LOWER.decode(LOWER.encode("你好"))
    ids = [BPE.cls_id, *BPE.encode("Naïve cat"), BPE.sep_id]
    assert BPE.decode(ids) == "Naïve cat"
    assert BPE.decode(ids, skip_special=False) == "[CLS]Naïve cat[SEP]"
    assert [BPE.id_to_text(i) for i in (BPE.unk_id, ids[-2])] == ["<unk>", "at"]


def test_word_starts_by_the_originals_words():
    punctuation = set('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
    letters = set("abcdefghijklmnopqrstuvwxyz")
    starts = LOWER.word_start_table()
    assert starts.shape == (30000,)
    assert starts[LOWER.special_ids].tolist() == [False, True, True, True, True]
    for i in range(5, LOWER.vocab_size):
        piece = LOWER.id_to_token(i)
        plain = all(c.lower() in letters | punctuation for c in piece)
        expected = piece[0] in "▁<" or piece in punctuation or not plain
        assert starts[i] == expected, piece
    words = [word for word in LOWER.encode("don't parameter-reduction") if starts[word]]
    assert [LOWER.id_to_token(i) for i in words] == ["▁don", "'", "▁parameter", "-"]
    spaces = [BPE.id_to_token(i).startswith("Ġ") for i in range(5, 800)]
    expected = [False, True, True, True, True, *spaces]
    assert BPE.word_start_table().tolist() == expected


def test_digit_comma_rule_of_another_vocabulary():
    sentences = ["abc 7,d x7,d 7,7,7 ab7,d 87,d, 8 7 d x b"] * 30
    apart = {"split_by_unicode_script": False, "split_by_number": False}
    tokenizer = AlbertTokenizer(kinds.trained(sentences, 40, **apart))
    assert tokenizer.replacements
    for i, ids in tokenizer.replacements.items():
        pieces = [tokenizer.id_to_token(k) for k in ids]
        assert "".join(pieces) == tokenizer.id_to_token(i)
        assert pieces[-1] == ","
    for text in ["7,7,7 ab7,d", "87,d x7,"]:
        assert "".join(tokenizer.tokens(text)) == "▁" + text.replace(" ", "▁")


@BOTH
def test_save_and_pickle(tmp_path, tokenizer):
    path = tokenizer.save(tmp_path)
    assert path == str(tmp_path / tokenizer.file_name)
    assert tokenizer.save(tmp_path) == path  # the same content is no conflict
    for copy in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert type(copy) is type(tokenizer)
        assert copy.get_config() == tokenizer.get_config()
        assert copy.sha256 == tokenizer.sha256
        assert copy.encode("Hello 1990,") == tokenizer.encode("Hello 1990,")
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    with pytest.raises(UsageError, match="other: exists already"):
        tokenizer.save(other)
    assert other.read_bytes() == b"precious"
    tokenizer.save(other, overwrite=True)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == sorted(["other", tokenizer.file_name])


def test_a_list_of_pieces_is_named(tmp_path):
    plain = "<pad>\n<unk>\n[CLS]\n[SEP]\n[MASK]\n▁the\ncat\n"
    scored = "".join(f"{line}\t-1.5\n" for line in plain.split())
    for name, message in [
        ("own.vocab", "own.vocab: is the list of a model's pieces; give the model"),
        ("own.txt", "own.txt: is the list of pieces of another tokenizer"),
    ]:
        for content in (plain, scored):
            (tmp_path / name).write_text(content)
            with pytest.raises(DataError, match=message):
                load_tokenizer(tmp_path / name)


def test_not_a_model(tmp_path):
    path = tmp_path / "bad.model"
    for content in (b"", b"no model\0\xff", kinds.MODEL[:5000]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"bad.model: not a SentencePiece model \("):
            AlbertTokenizer(path)
    with pytest.raises(DataError, match="none.model: cannot be read"):
        AlbertTokenizer(tmp_path / "none.model")
    with pytest.raises(DataError, match="expected one of spiece.model.*found none"):
        load_tokenizer(tmp_path)


def test_ids_come_from_the_model():
    sentences = ["a b c d e f"] * 9
    data = kinds.trained(sentences, 11, pad_id=-1, control_symbols="[MASK]")
    with pytest.raises(DataError, match=r" tokens is <pad>, \[CLS\], \[SEP\]$"):
        AlbertTokenizer(data)
    controls = ["[MASK]", "[SEP]", "[CLS]"]
    ids = {"unk_id": 2, "bos_id": 1, "control_symbols": controls}
    tokenizer = AlbertTokenizer(kinds.trained(sentences, 18, **ids))
    assert (tokenizer.unk_id, tokenizer.mask_id, tokenizer.cls_id) == (2, 3, 5)
    assert tokenizer.special_ids == [0, 1, 2, 3, 4, 5]


@given(kinds.TEXT | st.binary())
@example("\ud800\0\u2581[CLS]")
def test_any_text(text):
    ids = LOWER.encode(text)
    assert all(0 <= i < LOWER.vocab_size for i in ids)
    assert not set(ids) & (set(LOWER.special_ids) - {LOWER.unk_id})
    LOWER.tokens(text)
    LOWER.decode(ids)
    assert BPE.decode(BPE.encode(text)) == to_unicode(text)
    assert BPE.unk_id not in BPE.encode(text)


def test_vocabulary_and_merges(tmp_path):
    model = json.loads(kinds.BPE)["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    lines = ["#version: 0.2", *merges, ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    for path in (tmp_path, tmp_path / "vocab.json"):
        tokenizer = load_tokenizer(path)
        assert tokenizer.encode_batch(kinds.TEXTS) == BPE.encode_batch(kinds.TEXTS)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    spaced = load_tokenizer(tmp_path)
    for found in (spaced, pickle.loads(pickle.dumps(spaced))):
        assert found.encode("the cat") == BPE.encode(" the cat")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # RoBERTa's names
    tokenizer = ByteBPETokenizer(byte_bpe.train(kinds.TEXTS, 300, special))
    ids = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3) and tokenizer.mask_id == 4
    (tmp_path / "merges.txt").write_text("x y z")
    message = "vocab.json and .*merges.txt: not a byte-level"
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "file, values",
    [
        ("config.json", {"format": "albert_tf", "tokenizer": {"do_lower_case": False}}),
        ("tokenizer_config.json", {"do_lower_case": False, "other": 1}),
        ("run.json", {"content": {"tokenizer": {"do_lower_case": False}}}),
    ],
)
def test_a_model_folder_knows_its_options(tmp_path, file, values):
    shutil.copy(SPIECE, tmp_path)
    (tmp_path / file).write_text(json.dumps(values))
    for path in (tmp_path, tmp_path / "spiece.model"):
        tokenizer = load_tokenizer(path, keep_accents=True)
        assert not tokenizer.do_lower_case
        assert tokenizer.keep_accents  # the folder does not say
    with pytest.raises(UsageError, match="do_lower_case=false.* received true"):
        load_tokenizer(tmp_path, do_lower_case=True)
    (tmp_path / file).write_text("[1]")
    with pytest.raises(DataError, match=file):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "file, content",
    [
        ("config.json", '{"tokenizer": "gpt2"}'),
        ("tokenizer_config.json", '{"do_lower_case": false}'),
    ],
)
def test_byte_level_bpe_reads_no_options(tmp_path, file, content):
    (tmp_path / "tokenizer.json").write_bytes(BPE.model)
    (tmp_path / file).write_text(content)
    assert load_tokenizer(tmp_path, do_lower_case=True).sha256 == BPE.sha256
    with pytest.raises(UsageError, match="BPE .*does not accept bogus"):
        load_tokenizer(tmp_path, bogus=1)


def test_an_unknown_option_is_refused():
    with pytest.raises(UsageError, match="unknown tokenizer options bogus"):
        load_tokenizer(SPIECE, bogus=1)


@pytest.mark.parametrize("kind", ["lower", "wordpiece"])
def test_a_vocabulary_of_another_script_is_said_once(kind, caplog):
    tokenizer = pickle.loads(pickle.dumps(ALL[kind]))
    tokenizer.encode_batch(["the cat sat on the mat " * 9] * 9)
    tokenizer.encode_batch(["the cat 😀"] * 20)
    assert not caplog.records
    for _ in range(2):
        tokenizer.encode_batch(["吾輩は猫である。"] * 99)
    (record,) = caplog.records
    assert "are unknown to the tokenizer" in record.getMessage()


@pytest.mark.parametrize(
    ("model_type", "words", "option"),
    [
        ("unigram", "Anna Berta Carl Dora", {"do_lower_case": False}),
        ("unigram", "नमस्ते दुनिया के लोगों", {"keep_accents": True}),
        ("unigram", "ගුරුවරයා පොතක් ලියයි", {"keep_accents": True}),
        ("wordpiece", "Öl über Ärger grün", {"keep_accents": True}),
    ],
)
def test_options_of_training_are_not_forgotten(tmp_path, model_type, words, option):
    path = tmp_path / "own.txt"
    path = path if model_type == "wordpiece" else path.with_suffix(".model")
    options = {"model_type": model_type, "vocab_size": 50, "progress": False}
    lines = [f"{words} {i % 10}{i % 8}{i % 7}" for i in range(200)]
    train_tokenizer(lines, path, **options, **option)
    stated = {"do_lower_case": True, "keep_accents": False} | option
    assert stated.items() <= load_tokenizer(path).get_config().items()
    path = path.rename(path.with_stem("moved"))  # without its options
    (name,) = option
    with pytest.raises(UsageError, match=rf"{name}: .*{path.name} does not state it"):
        load_tokenizer(path)
    for value in (True, False):
        load_tokenizer(path, **{name: value})
