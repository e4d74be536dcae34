"""WordPiece against transformers' tokenizer (stored), its files and its training."""

import json

import numpy as np
import pytest
import tokenizers

from albert_tf.errors import DataError, UsageError
from albert_tf.text.load import load_tokenizer
from albert_tf.text.train import train_tokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.text.kinds import WORDPIECE, WORDPIECE_FILE
from tests.tiny import GOLDEN

LOWER = WORDPIECE["wordpiece"]
ROWS = [
    json.loads(line)
    for line in (GOLDEN / "wordpiece/strings.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("name", ["lower", "cased", "mixed"])
def test_golden(name):
    options = (name != "cased", name == "mixed" or None, name != "mixed")
    lower, accents, chinese = options
    tokenizer = WordPieceTokenizer(
        WORDPIECE_FILE, lower, keep_accents=accents, tokenize_chinese_chars=chinese
    )
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
    content = tokenizer.to_json()
    for part, key, value in [
        ("model", "max_input_chars_per_word", 50),
        ("normalizer", "clean_text", False),
        ("pre_tokenizer", "type", "Whitespace"),
    ]:
        path.write_text(json.dumps({**content, part: {**content[part], key: value}}))
        with pytest.raises(DataError, match=r"tokenizer.json: .* of a WordPiece must"):
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
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n")
    with pytest.raises(DataError, match=r"none of its 4 tokens is \[MASK\]"):
        load_tokenizer(tmp_path)


_TRAIN = """
import hashlib, pathlib, sys
from albert_tf.text.train import train_tokenizer
lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
data = train_tokenizer(
    lines, model_type="wordpiece", vocab_size=600, progress=False
)
print(hashlib.sha256(data).hexdigest())
"""


def test_training_gives_the_same_bytes_in_every_process(run_python):
    path = GOLDEN / "tf1_data/input.txt"
    options = {"model_type": "wordpiece", "vocab_size": 600, "progress": False}
    lines = path.read_text().splitlines()
    tokenizer = WordPieceTokenizer(train_tokenizer(lines, **options))
    assert tokenizer.vocab_size == 600
    assert run_python("-c", _TRAIN, path).stdout.strip() == tokenizer.sha256
    with pytest.raises(UsageError, match="vocab_size must be at least"):
        train_tokenizer(lines, **options | {"vocab_size": 20})
    with pytest.raises(DataError, match="too small for vocab_size 99999"):
        train_tokenizer(lines, **options | {"vocab_size": 99_999})
