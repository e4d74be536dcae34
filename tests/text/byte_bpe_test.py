"""Byte-level BPE: the tokenizers library's ids, and the door to all tokenizers."""

import json
import pathlib
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.load import load_tokenizer
from albert_tf.text.normalization import to_unicode
from albert_tf.text.train import train_tokenizer

tokenizers = pytest.importorskip("tokenizers")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "tokenization"
STRINGS = json.loads((GOLDEN / "strings.json").read_text())
TEXTS = [item["text"] for item in STRINGS]
DATA = train_tokenizer(TEXTS * 3, model_type="byte_bpe", vocab_size=400, progress=False)
BPE = ByteBPETokenizer(DATA)


def test_ids_are_the_library_s():
    library = tokenizers.Tokenizer.from_str(DATA.decode())
    library.encode_special_tokens = True
    for text in TEXTS:
        assert BPE.encode(text) == library.encode(text, add_special_tokens=False).ids
    expected = [BPE.encode(text) for text in TEXTS]
    assert BPE.encode_batch(TEXTS) == expected
    ids, splits = BPE.encode_batch_flat(TEXTS)
    assert ids.dtype == np.int32
    assert np.split(ids, splits[1:-1])[9].tolist() == expected[9]


def test_attributes():
    ids = (BPE.pad_id, BPE.unk_id, BPE.cls_id, BPE.sep_id, BPE.mask_id)
    assert ids == (0, 1, 2, 3, 4) and BPE.special_ids == [0, 1, 2, 3, 4]
    assert BPE.vocab_size == 400
    assert BPE.token_to_id("[MASK]") == 4 and BPE.id_to_token(4) == "[MASK]"
    assert BPE.token_to_id("no such piece") == BPE.unk_id
    with pytest.raises(UsageError, match="0 to 399, received 400"):
        BPE.id_to_token(400)


def test_special_pieces_need_permission():
    text = "the cat is [MASK] [CLS]"
    assert not set(BPE.encode(text)) & set(BPE.special_ids)
    ids = BPE.encode(text, allow_special=("[MASK]",))
    assert ids == [*BPE.encode("the cat is"), BPE.mask_id, *BPE.encode(" [CLS]")]
    with pytest.raises(UsageError, match="received <mask>"):
        BPE.encode(text, allow_special=("<mask>",))


def test_decode():
    ids = [BPE.cls_id, *BPE.encode("Naïve cat"), BPE.sep_id]
    assert BPE.decode(ids) == "Naïve cat"
    assert BPE.decode(ids, skip_special=False) == "[CLS]Naïve cat[SEP]"


def test_word_starts():
    table = BPE.word_start_table()
    assert table.shape == (400,) and table.dtype == np.bool_
    for i in range(5, 400):
        assert table[i] == BPE.id_to_token(i).startswith("Ġ")
    assert table[BPE.cls_id] and not table[BPE.pad_id]
    assert table[BPE.encode(" the")[0]]


@given(st.text())
@example("\ud800\0")
def test_any_text_survives(text):
    assert BPE.decode(BPE.encode(text)) == to_unicode(text)
    assert BPE.unk_id not in BPE.encode(text)


@given(st.binary())
def test_any_bytes(data):
    assert BPE.encode_batch([data]) == [BPE.encode(data)]


def test_save_pickle_and_load(tmp_path):
    path = BPE.save(tmp_path)
    assert path == str(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match="exists already"):
        ByteBPETokenizer(_roberta().encode()).save(path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.sha256 == BPE.sha256
    assert pickle.loads(pickle.dumps(loaded)).encode("a cat") == BPE.encode("a cat")
    with pytest.raises(UsageError, match="does not accept keep_accents"):
        load_tokenizer(path, keep_accents=True)


def test_roberta_names():
    tokenizer = ByteBPETokenizer(_roberta().encode())
    ids = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3) and tokenizer.mask_id == 4
    assert tokenizer.encode("a <mask>", ("<mask>",))[-1] == 4


def test_vocabulary_and_merges(tmp_path):
    model = json.loads(DATA)["model"]
    vocab = {**model["vocab"]}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    lines = ["#version: 0.2", *merges, ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    for path in (tmp_path, tmp_path / "vocab.json"):
        tokenizer = load_tokenizer(path)
        assert tokenizer.encode_batch(TEXTS) == BPE.encode_batch(TEXTS)
    (tmp_path / "merges.txt").write_text("x y z")
    with pytest.raises(
        DataError, match="vocab.json and .*merges.txt: not a byte-level"
    ):
        load_tokenizer(tmp_path)


def test_bad_files(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(DataError, match="tokenizer.json: not a tokenizer.json"):
        load_tokenizer(path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, "<unk>"))
    path.write_text(words.to_str())
    with pytest.raises(DataError, match="byte-level BPE, received .* WordLevel"):
        load_tokenizer(path)
    lacking = json.loads(DATA)
    lacking["added_tokens"] = []
    lacking["model"]["vocab"]["[MASQ]"] = lacking["model"]["vocab"].pop("[MASK]")
    path.write_text(json.dumps(lacking))
    with pytest.raises(DataError, match=r"of its 400 tokens is \[MASK\] or <mask>$"):
        load_tokenizer(path)
    with pytest.raises(DataError, match="none.json: cannot be read"):
        load_tokenizer(tmp_path / "none.json")
    path.unlink()
    with pytest.raises(DataError, match="expected one of spiece.model.*found none"):
        load_tokenizer(tmp_path)


def _roberta():
    """A tokenizer.json with RoBERTa's special pieces and their ids."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer.to_str()
