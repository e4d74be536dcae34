"""Byte-level BPE tokenizer (as in GPT-2 and RoBERTa).

Built on the Hugging Face tokenizers library, which is imported on first use.
`byte_bpe_graph` performs the same tokenization in the TensorFlow graph.

Legend: `V` vocabulary, `B` strings.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.text import offsets
from albert_tf.text.added_tokens import checked, complete
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_json import parse, step_names

# White space as Unicode defines it; `str.isspace` also accepts U+001C to U+001F.
_SPACE_BEFORE = re.compile(r"[^\S\x1c-\x1f]+\Z")
_WORD_START = "Ġ"  # how a space is written in byte-level tokens
# Steps that neither make a text much longer nor take quadratic time.
_STEPS = (
    *("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt"),
    *("ByteLevel", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"),
)
# Options that RoBERTa leaves unset and `byte_bpe_graph` does not implement.
_PLAIN_MODEL = (
    "dropout",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "ignore_merges",
)


class ByteBPETokenizer(Tokenizer):
    """Turns text into byte-level BPE ids, the same as the tokenizers library.

    Text is not normalized, and every text can be encoded. Special tokens written in the
    text are plain text.

    Args:
        model: Path of a `tokenizer.json` or (with `merges`) of a `vocab.json`, or the
            bytes of a `tokenizer.json`.
        merges: Path of the `merges.txt` that belongs to a `vocab.json`.
        added_tokens: sequence of dict. Tokens to add to the file's.
        add_prefix_space: bool or None. Whether a space is put before each text.
            Default: the value in the `tokenizer.json`, which cannot be changed, else
            False.

    Attributes:
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Read from the file.
        special_ids: list of int. Ids of these and all other special tokens, sorted.
        sha256: str. Hex digest of the `tokenizer.json`.
        collapses_white_space: bool. False; spaces are part of the tokens.

    Raises:
        DataError: If a file is invalid or lacks a special token.

    Example:
        >>> import albert_tf
        >>> tokenizer = albert_tf.ByteBPETokenizer("my_roberta/tokenizer.json")
        >>> tokenizer.decode(tokenizer.encode("Any text, 2 spaces  kept."))
        'Any text, 2 spaces  kept.'
    """

    file_name = "tokenizer.json"
    options = ("added_tokens",)
    collapses_white_space = False
    # This package's names, then RoBERTa's.
    _special_names = (
        ("<pad>",),
        ("<unk>",),
        ("[CLS]", "<s>"),
        ("[SEP]", "</s>"),
        ("[MASK]", "<mask>"),
    )
    _separator = ""
    _added = None  # the library finds added tokens itself

    def __init__(
        self,
        model: str | os.PathLike | bytes,
        merges: str | os.PathLike | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        add_prefix_space: bool | None = None,
    ):
        name = "tokenizer.json" if isinstance(model, bytes) else os.fspath(model)
        data = model if isinstance(model, bytes) else files.read_bytes(model)
        if merges is not None:
            lines, has_space = files.read_text(merges), bool(add_prefix_space)
            data = _join_vocabulary(name, data, lines, merges, has_space)
        content = parse(data, name)
        data = _with_added(content, added_tokens) or data
        super().__init__(data)
        added = content["added_tokens"]
        ids = content["model"]["vocab"] | {t["content"]: t["id"] for t in added}
        # If two tokens could have a role, the later one was added by a user, such as
        # `[SEP]` to a RoBERTa.
        self._special_names = tuple(
            tuple(sorted(filter(ids.__contains__, names), key=ids.get)[:1]) or names
            for names in self._special_names
        )
        roles = {name for names in self._special_names for name in names}
        self._library = library = _load(content, name, add_prefix_space, roles)
        tokens = [library.id_to_token(i) for i in range(library.get_vocab_size())]
        controls = [t["id"] for t in added if t["special"]]
        self._set_vocabulary(tokens, controls, name, checked(added, name, roles))
        (mask,) = [t for t in added if t["id"] == self.mask_id] or [{}]
        # Whether a mask replaces a word together with the space before it.
        self.mask_has_space = bool(mask.get("lstrip"))

    def after_word(self, text: str) -> str:
        no_space = ("", " ", *(t["content"] for t in self.added_tokens))
        return text if not text or text.startswith(no_space[1:]) else f" {text}"

    def _encode_between(self, part: str, is_first: bool, is_last: bool) -> list[int]:
        bare = self.mask_has_space and not is_last
        return self.encode(_SPACE_BEFORE.sub("", part) if bare else part)

    def get_config(self) -> dict[str, Any]:
        return {}  # the file holds its added tokens

    def _encode_with_offsets(
        self, text: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        encoding = self._library.encode(text, add_special_tokens=False)
        spans = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        starts, ends = spans[:, 0].copy(), spans[:, 1].copy()
        offsets.include_marks(text, starts, ends)
        return np.array(encoding.ids, np.int32), starts, ends

    def _encode_rows(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        encodings = self._library.encode_batch_fast(
            [to_unicode(text) for text in texts], add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]

    def id_to_text(self, token_id: int) -> str:
        return self.decode([token_id], skip_special=False).strip()

    @functools.cached_property
    def graph(self):
        from albert_tf.text.byte_bpe_graph import GraphByteBPE

        return GraphByteBPE(self, **_graph_tables(self._library))

    @property
    def graph_offsets(self):
        self._check_plain()
        return self.graph.tokenize_with_offsets

    def _starts_word(self, token: str) -> bool:
        """Returns whether the token begins with a space."""
        return token.startswith(_WORD_START)


def train(sentences: Iterable[str], vocab_size: int, special: Sequence[str]) -> bytes:
    """Trains a byte-level BPE tokenizer and returns its `tokenizer.json`.

    The special tokens get the ids 0, 1, ... and count toward `vocab_size`.
    """
    import tokenizers

    tokenizer = _byte_level(tokenizers, tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_special(tokenizers, token) for token in special],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer.to_str(pretty=True).encode("utf-8")


def _special(tokenizers, token: str):
    """Returns a special token; a mask includes the space before it."""
    is_mask = token in ByteBPETokenizer._special_names[-1]
    return tokenizers.AddedToken(token, lstrip=is_mask, normalized=False, special=True)


def _byte_level(tokenizers, model, add_prefix_space: bool = False):
    tokenizer = tokenizers.Tokenizer(model)
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.pre_tokenizer = level
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _with_added(content: dict[str, Any], tokens: Iterable[Mapping]) -> bytes | None:
    """Adds tokens to a `tokenizer.json`; returns its new bytes, None if unchanged."""
    entries, vocabulary = content["added_tokens"], content["model"]["vocab"]
    there = {t["content"]: t["id"] for t in entries}
    new = [t for t in tokens if t["content"] not in there]
    for token in new:
        size = len(vocabulary.keys() | there.keys())
        token_id = vocabulary.get(token["content"], size)
        entries.append(complete(token, token.get("id", token_id)))
        there[token["content"]] = token_id
    return json.dumps(content).encode() if new else None


def _load(content: dict[str, Any], name: str, add_prefix_space: bool | None, roles):
    """Returns the library's tokenizer for the content of a `tokenizer.json`."""
    # Special tokens with a role that are written in a text are plain text.
    # Steps that could take unbounded time or memory are errors, too.
    import tokenizers

    model = content["model"]
    with _reading(f"{name}: not a tokenizer.json"):
        kind = model.get("type", "BPE")
        steps = [
            kind_of
            for key in ("normalizer", "pre_tokenizer")
            for kind_of in step_names(content.get(key))
        ]
        kinds = [step.split(" ")[0] for step in steps]
        odd = [
            s for s, kind_of in zip(steps, kinds, strict=True) if kind_of not in _STEPS
        ]
        # The library panics at a prefix that is longer than a token.
        for key, most in zip(_PLAIN_MODEL[1:3], (0, 9), strict=True):
            odd += [key] * (len(model.get(key) or "") > most)
        unknown = model.get("unk_token")
        is_token = unknown is None or unknown in model["vocab"]
        levels = "ByteLevel" in [*kinds, (content.get("decoder") or {}).get("type")]
    message = f"{name}: expected byte-level BPE, received a model of type {kind}"
    require(kind == "BPE" and levels, message, error=DataError)
    message = f"{name}: steps of byte-level BPE must be of {', '.join(_STEPS)}, "
    message += "without a continuing_subword_prefix or a long end_of_word_suffix"
    require(not odd, message, odd, error=DataError)
    message = f"{name}: unk_token must be in its vocabulary"
    require(is_token, message, unknown, error=DataError)
    message = f"{name}: its add_prefix_space must be {add_prefix_space}, as "
    message += "tokenizer_config.json says, or is by default of its tokenizer_class"
    contradicts = f"ByteLevel {not add_prefix_space}" in steps
    fits = add_prefix_space is None or not contradicts
    require(fits, message, not add_prefix_space, error=DataError)
    if model.get("dropout"):
        logging.warning("%s: its dropout %s is left out", name, model["dropout"])
    added = [
        {**t, "special": t["special"] and t["content"] in roles}
        for t in content["added_tokens"]
    ]
    # The post-processor would add special tokens, which the callers add themselves, and
    # would trim the space that belongs to a token from its offsets.
    content = {
        **content,
        "model": {**model, "dropout": None},
        "added_tokens": added,
        **dict.fromkeys(("decoder", "post_processor", "padding", "truncation")),
    }
    with _reading(f"{name}: not a tokenizer.json"):
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.encode_special_tokens = True
    return tokenizer


@contextlib.contextmanager
def _reading(problem: str) -> Iterator[None]:
    """Re-raises the library's errors, which have no common class, as `DataError`."""
    try:
        yield
    # A panic in the library is not an `Exception`, and its class cannot be imported.
    except BaseException as e:
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        raise DataError(f"{problem}: {str(e).splitlines()[0][:120]}") from None


def _join_vocabulary(
    name: str, vocab: bytes, merges: str, merges_name, has_space: bool
) -> bytes:
    """Combines `vocab.json` and `merges.txt` into one `tokenizer.json`."""
    import tokenizers

    with _reading(f"{name} and {merges_name}: not a byte-level BPE vocabulary"):
        tokens = json.loads(vocab)
        lines = [line.split(" ") for line in merges.splitlines() if line.strip()]
        pairs = [tuple(line) for line in lines if line[0] != "#version:"]
        model = tokenizers.models.BPE(vocab=tokens, merges=pairs)
    tokenizer = _byte_level(tokenizers, model, has_space)
    special = [name for names in ByteBPETokenizer._special_names for name in names]
    special = [_special(tokenizers, name) for name in special if name in tokens]
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str().encode("utf-8")


def _graph_tables(tokenizer) -> dict:
    """Returns the arguments of `GraphByteBPE`; a `UsageError` if ids could differ."""
    kinds = json.loads(tokenizer.to_str())
    model, words = kinds["model"], kinds["pre_tokenizer"] or {}
    unsupported = [
        f"model.{name} {model[name]!r}"
        for name in _PLAIN_MODEL
        if model.get(name) not in (None, "", False)
    ]
    if kinds["normalizer"] is not None:
        unsupported.append(f"normalizer {kinds['normalizer']['type']}")
    if words.get("type") != "ByteLevel":
        unsupported.append(f"pre_tokenizer {words.get('type')}")
    vocabulary, alphabet = model["vocab"], byte_alphabet()
    missing = [octet for octet, char in enumerate(alphabet) if char not in vocabulary]
    unsupported += [f"no token for byte {octet}" for octet in missing[:1]]
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    ranks = {left + right: rank for rank, (left, right) in enumerate(pairs)}
    # The graph merges all occurrences of a pair at once. That equals the library's
    # order as long as a token is produced before it becomes part of another.
    if len(ranks) < len(pairs) or any(
        ranks.get(part, -1) >= rank for rank, pair in enumerate(pairs) for part in pair
    ):
        unsupported.append("merges that use results of later merges")
    require(
        not unsupported,
        "byte-level BPE in the graph requires a tokenizer.json like RoBERTa's or "
        f"train_tokenizer's, received one with {', '.join(unsupported)}; tokenize with "
        "encode_batch instead and pass token ids to the model",
    )
    return {
        "byte_ids": [vocabulary[symbol] for symbol in alphabet],
        "merges": [
            (vocabulary[left], vocabulary[right], vocabulary[left + right])
            for left, right in pairs
        ],
        "add_prefix_space": words["add_prefix_space"],
        "use_regex": words.get("use_regex", True),
    }


def byte_alphabet() -> list[str]:
    """Returns the character that represents each byte in tokens (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [octet for octet in range(256) if octet not in printable]
    return [
        chr(octet if octet in printable else 256 + rest.index(octet))
        for octet in range(256)
    ]
