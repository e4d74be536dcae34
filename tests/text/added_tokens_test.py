"""Added tokens get the ids of the tokenizers library, in Python and in the graph."""

import json

import pytest
import tokenizers

from albert_tf.errors import DataError
from albert_tf.text.added_tokens import complete
from albert_tf.text.load import load_tokenizer
from albert_tf.text.tokenizer_json import to_json
from tests.text import kinds

TOKENS = [("[E1]", False), ("HTTPURL", False), ("[E3]", True), ("@USER", True)]
TEXTS = [
    *("see [E1] x", "a[E1]b[e1] [E3]c [e3]", "@USER@USER HTTPURLs xhttpurl  [E1] ", ""),
    *("[E1]", "  [E3]  ", "The cafe\u0301 [E\u03011]. ①[E1]"),
    "[E1][E3] [MASK] 中[E1]中",
]


def content_of(kind: str) -> dict:
    """Returns a `tokenizer.json` that ends with added tokens."""
    if kind == "wordpiece":
        content = kinds.WORDPIECE["wordpiece"].to_json()
    elif kind == "sentencepiece":  # in Hugging Face's form
        content = to_json(kinds.SENTENCEPIECE["lower"])
        steps = content["normalizer"]["normalizers"]
        charsmap = [step for step in steps if step["type"] == "Precompiled"]
        fold = [{"type": name} for name in ("NFKD", "StripAccents", "Lowercase")]
        content["normalizer"]["normalizers"] = [*fold, *charsmap]
        space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
        split = [{"type": "WhitespaceSplit"}, {**space, "split": True}]
        content["pre_tokenizer"]["pretokenizers"] = split
    else:
        content = json.loads(kinds.bpe().model)
    size = len(content["model"]["vocab"])
    content["added_tokens"] += [
        complete({"content": token, "special": special}, size + i)
        for i, (token, special) in enumerate(TOKENS)
    ]
    return content


def ids_of_library(content: dict, texts: list[str]) -> list[list[int]]:
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    return [library.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "bpe"])
def test_ids_are_the_library_s(tmp_path, kind):
    content = content_of(kind)
    if kind == "bpe":
        content["added_tokens"][-4]["lstrip"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    texts = [text for text in TEXTS if "[MASK]" not in text]
    ours = load_tokenizer(tmp_path)
    expected = ids_of_library(content, texts)
    assert ours.encode_batch(texts) == expected
    assert [ours.encode(text) for text in texts] == expected
    texts += [text for text in TEXTS if "[MASK]" in text]
    assert ours(texts).to_list() == ours.encode_batch(texts)
    masked = ours.graph.tokenize_masked(texts).to_list()
    assert masked == [ours.encode_masked(text) for text in texts]
    again = type(ours)(ours.model, **ours.get_config())
    assert again.encode_batch(texts) == ours.encode_batch(texts)
    assert "[E1]" in ours.decode(ours.encode("[E1]"))


def test_the_first_token_of_a_role_has_it(tmp_path):
    """A RoBERTa with `[SEP]` between fields, or ours with `</s>`, keeps its own."""
    content = json.loads(kinds.bpe().model)
    there = {t["content"] for t in content["added_tokens"]}
    (new,) = {"[SEP]", "</s>"} - there
    size = kinds.bpe().vocab_size
    content["added_tokens"] += [complete({"content": new, "special": True}, size)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    found, text = load_tokenizer(tmp_path), f"a {new} b"
    assert found.sep_id == kinds.bpe().sep_id and size in found.special_ids
    expected = ids_of_library(content, [text])[0]
    assert found.encode(text) == expected
    (tmp_path / "tokenizer.json").unlink()
    own = {t["content"]: t["id"] for t in content["added_tokens"][:-1]}
    vocabulary = json.dumps(content["model"]["vocab"] | own)
    (tmp_path / "vocab.json").write_text(vocabulary)
    merges = "\n".join(" ".join(pair) for pair in content["model"]["merges"])
    (tmp_path / "merges.txt").write_text(merges)
    (tmp_path / "added_tokens.json").write_text(json.dumps({new: size}))
    assert load_tokenizer(tmp_path).encode(text) == expected


def test_files_next_to_a_vocabulary_name_them(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(kinds.WORDPIECE["wordpiece"].model)
    size = kinds.WORDPIECE["wordpiece"].vocab_size
    names = [token for token, _ in TOKENS]
    plain = {token: size + i for i, token in enumerate(names)}
    special = {"additional_special_tokens": names[2:], "mask_token": "[MASK]"}
    (tmp_path / "added_tokens.json").write_text(json.dumps(plain))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    expected = ids_of_library(content_of("wordpiece"), TEXTS[:-1])
    found = load_tokenizer(tmp_path, do_lower_case=True)
    assert found.encode_batch(TEXTS[:-1]) == expected
    for wrong, message in [
        ({"[E1]": size + 1}, f"id of the added token .* must be {size}, received"),
        ({"[E1]": "x"}, "its added tokens cannot be read"),
    ]:
        (tmp_path / "added_tokens.json").write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=message):
            load_tokenizer(tmp_path, do_lower_case=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer_class", "BertJapaneseTokenizer"),
        ("do_basic_tokenize", False),
        ("never_split", ["x"]),
        ("word_tokenizer_type", "mecab"),
        ("add_prefix_space", "x"),
        ("sep_token", {"content": "[CLS]"}),
    ],
)
def test_steps_that_are_not_reproduced_are_refused(tmp_path, key, value):
    (tmp_path / "vocab.txt").write_bytes(kinds.WORDPIECE["wordpiece"].model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(DataError, match=rf"tokenizer_config.json: {key}"):
        load_tokenizer(tmp_path)
