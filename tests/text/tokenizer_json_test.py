"""Steps and ids of a `tokenizer.json` that are refused, whoever wrote it."""

import json

import pytest
import tokenizers

from albert_tf.errors import DataError
from albert_tf.text.added_tokens import complete
from albert_tf.text.load import load_tokenizer
from tests.text import kinds
from tests.text.added_tokens_test import content_of


def refuse(tmp_path, content: dict, message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)


def unigram(normalizers: list[dict], pre_tokenizers: list[dict], **model) -> dict:
    tokens = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*([token, 0.0] for token in tokens), ["▁a", -1.0]]
    return {
        "model": {"type": "Unigram", "vocab": vocabulary, "unk_id": 1, **model},
        "added_tokens": [complete({"content": t}, i) for i, t in enumerate(tokens)],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
    }


SPLIT = {"type": "WhitespaceSplit"}
SPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
FOLD = [{"type": name} for name in ("NFKD", "StripAccents", "Lowercase")]
QUOTES = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}


def test_other_steps_of_a_unigram_model(tmp_path):
    content = unigram([QUOTES, *FOLD], [SPLIT, SPACE])
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).encode("Á a") == [5, 5]
    for other in (
        unigram([FOLD[2], *FOLD[:2]], [SPLIT, SPACE]),
        unigram([QUOTES | {"content": "a"}, *FOLD], [SPLIT, SPACE]),
        unigram([{"type": "NFC"}, *FOLD], [SPLIT, SPACE]),
        unigram(FOLD[:1], [SPLIT, SPACE]),
        unigram(FOLD, [{"type": "Whitespace"}, SPACE]),
        unigram(FOLD, [SPLIT, SPACE | {"prepend_scheme": "never"}]),
        unigram(FOLD, [SPLIT, SPACE | {"replacement": "_"}]),
        unigram(FOLD, [SPACE]),
        unigram(FOLD, [SPLIT, SPACE], byte_fallback=True),
    ):
        refuse(tmp_path, other, "json: the steps of a unigram model must be ALBERT's")


@pytest.mark.parametrize(
    "vocabulary, unk_id, message",
    [
        *(([["a", -1.0]], unk_id, "of a unigram") for unk_id in (None, "a", 1.0)),
        ([["a", -1.0]], 10**20, "of a unigram"),
        ([["\ud800", -1.0]], 0, "of a unigram"),
        ([["a", 10**400]], 0, "of a unigram"),
        ([["a", -1.0]], 7, "one piece for the unknown"),
        ([["<unk>", -1.0], ["a", -2.0]], 0, "none of its 2 tokens is <pad>"),
    ],
)
def test_a_damaged_unigram_file(tmp_path, vocabulary, unk_id, message):
    content = unigram([], [SPLIT, SPACE], vocab=vocabulary, unk_id=unk_id)
    content |= {"added_tokens": [], "normalizer": None}
    refuse(tmp_path, content, f"tokenizer.json: .*{message}")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_ids_that_are_not_in_order(tmp_path, kind):
    message = "ids of its .* tokens must be 0, 1|not a tokenizer|tokens cannot be read"
    for token_id in (0, 2**31 - 1, 10**6, -1, "7", None):
        content = content_of(kind)
        content["added_tokens"][-1]["id"] = token_id
        refuse(tmp_path, content, message)
        content = content_of(kind)
        content["model"]["vocab"]["zzz"] = token_id
        refuse(tmp_path, content, message)


def test_steps_without_bound(tmp_path):
    content, long = json.loads(kinds.BPE), "a" * 10**6
    prefix = {"continuing_subword_prefix": "éé"}
    for change in (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a*)*b"}}},
        {"normalizer": QUOTES | {"pattern": {"String": ""}, "content": long}},
        {"normalizer": {"type": "Prepend", "prepend": long}},
        {"model": content["model"] | prefix},  # would panic
        {"model": content["model"] | {"end_of_word_suffix": long}},
    ):
        refuse(tmp_path, content | change, "steps of byte-level BPE must be of")


def test_files_that_are_no_byte_level_bpe(tmp_path):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, "<unk>"))
    lacking = json.loads(kinds.BPE) | {"added_tokens": []}
    lacking["model"]["vocab"]["[MASQ]"] = lacking["model"]["vocab"].pop("[MASK]")
    refuse(tmp_path, {}, "tokenizer.json: not a tokenizer.json")
    refuse(tmp_path, json.loads(words.to_str()), "byte-level BPE, .* WordLevel")
    refuse(tmp_path, lacking, r"of its 800 tokens is \[MASK\] or <mask>$")


def test_an_unknown_token_is_in_the_vocabulary(tmp_path):
    """The library raises at a text without a token, not before."""
    content = json.loads(kinds.BPE)
    content["model"]["unk_token"] = "nope"
    refuse(tmp_path, content, "json: unk_token must be in its .* received 'nope'")


def test_dropout_is_left_out(caplog):
    dropped = kinds.bpe(lambda c: c["model"].update(dropout=0.9))
    (record,) = caplog.records
    assert "its dropout 0.9 is left out" in record.getMessage()
    assert dropped.encode_batch(kinds.TEXTS) == kinds.bpe().encode_batch(kinds.TEXTS)


def test_a_space_before_each_text_must_be_undisputed(tmp_path):
    content = json.loads(kinds.BPE)
    for in_file, config in (
        (False, {"add_prefix_space": True}),
        (True, {"add_prefix_space": False}),
        (True, {"tokenizer_class": "RobertaTokenizer"}),  # whose default is False
    ):
        content["pre_tokenizer"]["add_prefix_space"] = in_file
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        refuse(tmp_path, content, f"json: its add_prefix_space must be {not in_file}")
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(tmp_path).encode("a") == kinds.bpe().encode(" a")
    (tmp_path / "spiece.model").write_bytes(kinds.MODEL)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": false}')
    with pytest.raises(DataError, match=r"config.json: add_prefix_space must be true"):
        load_tokenizer(tmp_path)
