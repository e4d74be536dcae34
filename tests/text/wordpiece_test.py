"""WordPiece against transformers' tokenizer (stored), its files and its training."""

import json
import pickle
import re
import tracemalloc

import numpy as np
import pytest
import tokenizers

from albert_tf.errors import DataError, UsageError
from albert_tf.text.load import load_tokenizer
from albert_tf.text.train import train_tokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.text.kinds import WORDPIECE, WORDPIECE_FILE
from tests.tiny import GOLDEN, SPIECE, TEXT

LOWER = WORDPIECE["wordpiece"]
ROWS = [
    json.loads(line)
    for line in (GOLDEN / "wordpiece/strings.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("name", ["lower", "cased", "mixed"])
def test_golden(name):
    options = (name != "cased", name == "mixed" or None, name != "mixed")
    lower, accents, chinese = options
    given = {"keep_accents": accents, "tokenize_chinese_chars": chinese}
    tokenizer = WordPieceTokenizer(WORDPIECE_FILE, lower, **given)
    for row in ROWS:
        ids, places = row[name]
        found, starts, ends = tokenizer.encode_with_offsets(row["text"])
        assert tokenizer.encode(row["text"]) == found.tolist() == ids, row["text"]
        assert np.stack([starts, ends], 1).ravel().tolist() == places, row["text"]


def test_masks_words_and_decoding():
    assert LOWER.encode_masked("the[MASK].")[1] == LOWER.mask_id
    assert LOWER.mask_id not in LOWER.encode("[MASK]")
    starts = LOWER.word_start_table()
    assert not starts[LOWER.token_to_id("##a")] and starts[LOWER.token_to_id("a")]
    assert LOWER.decode(LOWER.encode("The cafés")) == "the cafes"


def test_lower_case_is_the_library_s():
    # Python's Unicode tables are older.
    assert LOWER.normalize("\u1c89!") == "\u1c8a ! "


def test_long_words_are_not_kept():
    tokenizer = pickle.loads(pickle.dumps(LOWER))
    assert tokenizer.encode("a" * 101) == [tokenizer.unk_id]
    tracemalloc.start()
    for i in range(20):
        assert tokenizer.encode(f"{i}" + "a" * 300_000) == [tokenizer.unk_id]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 1_000_000


def test_a_tokenizer_json_is_the_same_tokenizer(tmp_path):
    for tokenizer in WORDPIECE.values():
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(tokenizer.to_json()))
        again = load_tokenizer(path)
        assert again.get_config() == tokenizer.get_config()
        assert again.sha256 == tokenizer.sha256
        library = tokenizers.Tokenizer.from_file(str(path))
        library.encode_special_tokens = True
        for row in ROWS:
            encoded = library.encode(row["text"], add_special_tokens=False)
            assert encoded.ids == tokenizer.encode(row["text"])
    tokenizer.to_json()["model"]["vocab"].clear()  # the caller's, not the tokenizer's
    content = tokenizer.to_json()
    vocab = content["model"]["vocab"]
    for part, key, value in [
        ("model", "vocab", {**vocab, "two\nlines": len(vocab)}),
        ("model", "vocab", {**vocab, "the ": len(vocab)}),
        ("model", "max_input_chars_per_word", 50),
        ("normalizer", "clean_text", False),
        ("pre_tokenizer", "type", "Whitespace"),
    ]:
        path.write_text(json.dumps({**content, part: {**content[part], key: value}}))
        with pytest.raises(DataError, match=r"tokenizer.json: .* of a WordPiece m"):
            load_tokenizer(path)


def test_a_folder_says_the_options(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(LOWER.model)
    config = {"do_lower_case": False, "strip_accents": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = load_tokenizer(tmp_path)
    assert (found.do_lower_case, found.keep_accents) == (False, False)
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(tmp_path, do_lower_case=False).keep_accents
    assert LOWER.with_options(do_lower_case=False).keep_accents
    with pytest.raises(UsageError, match="unknown tokenizer options digit_comma_rule"):
        load_tokenizer(tmp_path, digit_comma_rule=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"none of its 0 tokens is \[PAD\] or <pad>, \[UNK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n", r"none of its 4 tokens is \[MASK\] or <m"),
        (LOWER.model + b"\xff\n", "not a vocab.txt: 'utf-8' .* byte 0xff in position"),
        (LOWER.model.decode().encode("utf-16"), "not a vocab.txt: 'utf-8' codec"),
        (b'{"model": 1}', "not a tokenizer.json"),
        (None, "expected a file, found a folder"),
    ],
)
def test_files_that_are_refused(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=rf"vocab.txt: {message}") as raised:
        load_tokenizer(tmp_path)
    assert "\n" not in str(raised.value)


def test_odd_files_are_read(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    odd = b"\xef\xbb\xbf" + LOWER.model + b"a\0b\n" + b"x" * 500_000
    path.write_bytes(odd)
    load_tokenizer(path, do_lower_case=False)
    assert not caplog.records
    path.write_bytes(odd + b"\nthe\n\n\n")
    found = load_tokenizer(path, do_lower_case=False)
    message = "2 tokens are never used, .* 'the' in lines 467 and 3003"
    assert re.search(message, caplog.text)
    ids = found.encode("the a")
    assert found.tokens("the a") == LOWER.tokens("the a")
    assert found(["the a"]).to_list() == [ids]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(found.to_json()))
    assert load_tokenizer(path).vocabulary == found.vocabulary


def test_special_tokens_may_have_roberta_s_names():
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "##b"]
    found = WordPieceTokenizer("\n".join(names).encode())
    special = found.cls_id, found.pad_id, found.sep_id, found.unk_id, found.mask_id
    assert special == (0, 1, 2, 3, 4)
    assert found.encode_masked("ab[MASK]c") == [5, 6, 4, 3]


def test_sentencepiece_beside_a_vocab_txt_is_read_and_said(tmp_path, caplog):
    (tmp_path / "vocab.txt").write_bytes(LOWER.model)
    (tmp_path / "spiece.model").write_bytes(SPIECE.read_bytes())
    assert load_tokenizer(tmp_path).file_name == "spiece.model"
    (record,) = caplog.records
    message = f"vocab.txt: is not read, since {tmp_path}/spiece.model is there, too"
    assert record.getMessage().endswith(message)


def trained(path=None, vocab_size=600, **options):
    lines = TEXT.read_text().splitlines()
    options |= {"model_type": "wordpiece", "vocab_size": vocab_size}
    return train_tokenizer(lines, path, progress=False, **options)


def test_training_gives_the_same_bytes_in_every_process(run_forked):
    tokenizer = WordPieceTokenizer(trained())
    assert tokenizer.vocab_size == 600
    code = "from tests.text import wordpiece_test as t; import hashlib\n"
    code += "print(hashlib.sha256(t.trained()).hexdigest())"
    assert run_forked("-c", code).stdout.strip() == tokenizer.sha256
    with pytest.raises(UsageError, match="vocab_size must be at least"):
        trained(vocab_size=20)
    with pytest.raises(DataError, match="too small for vocab_size 99999"):
        trained(vocab_size=99_999)


def test_training_writes_options_next_to_the_vocabulary(tmp_path):
    path, stored = tmp_path / "vocab.txt", tmp_path / "tokenizer_config.json"
    trained(path)
    assert not stored.exists()
    path.unlink()
    trained(path, do_lower_case=False)
    found = load_tokenizer(path)
    assert (found.do_lower_case, found.keep_accents) == (False, False)
    path.unlink()
    with pytest.raises(UsageError, match="tokenizer_config.json exists already"):
        trained(path, keep_accents=True)
    assert not path.exists()
    trained(path, overwrite=True)
    assert load_tokenizer(path).do_lower_case
