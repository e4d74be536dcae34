"""Loads a tokenizer of any kind from its file or folder."""

import os
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files, folders
from albert_tf.text import added_tokens, tokenizer_json
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.normalization import combining_pattern
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.wordpiece import WordPieceTokenizer

# Files of a folder that may hold its tokenizer; the first that exists is used.
IN_FOLDER = folders.VOCABULARIES
_CLASSES = (AlbertTokenizer, ByteBPETokenizer, WordPieceTokenizer)
OPTIONS = tuple(dict.fromkeys(name for kind in _CLASSES for name in kind.options))
# Hugging Face's name; formats that have no such file use it, too.
OPTION_FILE = "tokenizer_config.json"
# Largest fraction of a vocabulary's tokens that its options may make unreachable: in
# released vocabularies 0 with their own options, 1% to 50% with the opposite ones.
_MOST_USELESS = 0.005


def load_tokenizer(
    path: str | os.PathLike,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
    **kwargs,
) -> Tokenizer:
    """Loads a tokenizer; the name of its file and what it holds determine the kind.

    A file of a model folder takes its options from that folder, any other file from
    what `train_tokenizer` wrote next to it.

    Args:
        path: str or path. A SentencePiece model, a `tokenizer.json` of a unigram model,
            of WordPiece or of byte-level BPE, a `vocab.txt` of WordPiece, a
            `vocab.json` of BPE (with `merges.txt` next to it), or a folder with one of
            these.
        do_lower_case: bool or None. Whether text is lower-cased. Default: as stored in
            the model folder, or else True. Byte-level BPE ignores it and keeps text as
            it is.
        keep_accents: bool or None. Whether accents, tone marks and other combining
            characters are kept. Default: as stored in the model folder, or else False
            (WordPiece: kept if case is kept). Byte-level BPE does not accept it.
        **kwargs: Other arguments of the tokenizer's class.

    Raises:
        DataError: If the file does not exist or is not a tokenizer.
        UsageError: If the tokenizer does not accept an argument, its model folder
            contradicts one, or an option that is stated nowhere has a default under
            which many of its tokens cannot occur.

    Example:
        >>> import albert_tf
        >>> tokenizer = albert_tf.load_tokenizer("demo_output/pretrain/model")
        >>> type(tokenizer).__name__, tokenizer.encode("")
        ('AlbertTokenizer', [])
    """
    path = os.fspath(path)
    if files.is_folder(path):
        message = f"{path}: expected one of {', '.join(IN_FOLDER)}, found none"
        in_folder = find_file(path)
        require(in_folder, message, error=DataError)
        path = in_folder
    requested = {"do_lower_case": do_lower_case, "keep_accents": keep_accents, **kwargs}
    requested = {name: value for name, value in requested.items() if value is not None}
    kind, source, stated = _find_class(path)
    problem = f"{path}: unknown tokenizer options"
    if kind is ByteBPETokenizer:
        requested.pop("do_lower_case", None)
        problem = f"{path}: byte-level BPE keeps text as it is and does not accept"
    refused = ", ".join(name for name in requested if name not in kind.options)
    require(not refused, f"{problem} {refused}")
    folder, name = os.path.split(path)
    if name in IN_FOLDER:
        stored = stored_options(folder)
    else:
        stored = _options_of(option_file(path))
    check_options(requested, stored, path)
    options = stored | requested
    return _build(kind, source, stated, options, path)


def read_tokenizer(path: str, options: Mapping[str, Any]) -> Tokenizer:
    """Builds the tokenizer of a file, ignoring options that its class does not have.

    Raises `DataError` if the file is not a tokenizer, or no class has an option.
    """
    unknown = ", ".join(map(str, options.keys() - set(OPTIONS)))
    message = f"{path}: unknown tokenizer options {unknown}"
    require(not unknown, message, error=DataError)
    return _build(*_find_class(path), options, path)


def _find_class(path: str) -> tuple[type[Tokenizer], tuple, dict[str, Any]]:
    """Returns the class of a file's tokenizer, its source, and its own options."""
    if path.endswith(".txt"):
        return WordPieceTokenizer, (path,), {}
    if not path.endswith(".json"):
        return AlbertTokenizer, (path,), {}
    data = files.read_bytes(path)
    kind = tokenizer_json.model_type(data)
    if kind == "Unigram":
        model, stated = tokenizer_json.to_model(data, path)
        return AlbertTokenizer, (model,), stated
    if kind == "WordPiece":
        return WordPieceTokenizer, (path,), {}
    stem = path.removesuffix("vocab.json")
    return ByteBPETokenizer, (path, None if stem == path else f"{stem}merges.txt"), {}


def _build(
    kind: type[Tokenizer], source: tuple, stated, options, path: str
) -> Tokenizer:
    accepted = {name: options[name] for name in kind.options if name in options}
    for option in (stated.keys() & accepted.keys()) - {"added_tokens"}:
        message = f"{path}: its steps are made for {option}={stated[option]}"
        require(stated[option] == accepted[option], message, accepted[option])
    accepted = stated | accepted
    folder, name = os.path.split(path)
    if name in IN_FOLDER:
        has_space = added_tokens.check_steps(folder, kind.file_name)
        if kind is ByteBPETokenizer:
            accepted["add_prefix_space"] = has_space
    try:
        tokenizer = kind(*source, **accepted)
    except DataError as e:
        raise (e if source[0] == path else DataError(f"{path}: {e}")) from None
    if name in IN_FOLDER:
        added_tokens.check_roles(folder, tokenizer)
    if not (path.endswith(".json") and kind is WordPieceTokenizer):  # it states both
        _check_defaults(tokenizer, accepted, path)
    return tokenizer


def option_file(path: str) -> str:
    """Returns the path of the file that stores the options of a vocabulary file."""
    folder, name = os.path.split(path)
    return files.join(folder, OPTION_FILE) if name in IN_FOLDER else f"{path}.json"


def stored_options(folder: str) -> dict[str, Any]:
    """Returns the tokenizer options stored in a folder; empty if it stores none.

    The folder of a pretraining run stores them in its record. Raises `DataError` if a
    file is damaged.
    """
    paths = (files.join(folder, n) for n in ("config.json", OPTION_FILE, "run.json"))
    options = next(filter(None, map(_options_of, paths)), {})
    if tokens := added_tokens.read(folder):
        options.setdefault("added_tokens", tokens)
    return options


def _options_of(path: str) -> dict[str, Any]:
    """Returns the options in one file; empty if it does not exist or has none."""
    name = os.path.basename(path)
    values = files.read_json(path) if files.exists(path) else {}
    if name == "run.json":
        content = values.get("content")
        values = content if isinstance(content, dict) else {}
    elif name == "config.json" and values.get("format") != "albert_tf":
        values = {}
    if name in ("config.json", "run.json"):
        values = values.get("tokenizer") or {}
    message = f"{path}: tokenizer must be an object"
    require(isinstance(values, dict), message, values, error=DataError)
    if isinstance(values.get("strip_accents"), bool):  # Hugging Face's BERT
        values = {"keep_accents": not values["strip_accents"], **values}
    options = {k: values[k] for k in OPTIONS if isinstance(values.get(k), bool)}
    if isinstance(tokens := values.get("added_tokens"), list):
        options["added_tokens"] = added_tokens.checked(tokens, path)
    return options


def library_options(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the options of a tokenizer under the names that transformers uses."""
    options = tokenizer.get_config()
    if isinstance(tokenizer, WordPieceTokenizer):
        options["strip_accents"] = not options.pop("keep_accents")
    if tokens := options.pop("added_tokens", ()):
        options["added_tokens_decoder"] = {
            str(token["id"]): {key: token[key] for key in token if key != "id"}
            for token in tokens
        }
    return options


def check_options(
    given: Mapping[str, Any], known: Mapping[str, Any], source: str
) -> None:
    """Raises `UsageError` if requested options contradict a tokenizer's known ones.

    `known` are the options that a model was trained with, or records were created with;
    `source` names these for the message.
    """
    for name, value in given.items():
        there = known.get(name, value)
        require(
            there == value,
            f"{name}: {source} was made with {name}={str(there).lower()}, which cannot "
            f"be changed, received {str(value).lower()}",
        )


def warn_if_small(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Logs one line if a tokenizer uses less than 90% of a model's vocabulary."""
    if tokenizer.vocab_size < 0.9 * vocab_size:
        numbers = (tokenizer.vocab_size, vocab_size, vocab_size - tokenizer.vocab_size)
        logging.warning(
            "the tokenizer has %s tokens, the model's vocab_size is %s: the other %s "
            "rows of its embeddings are never used",
            *(f"{number:,}" for number in numbers),
        )


def _check_defaults(
    tokenizer: Tokenizer, stated: Mapping[str, bool], path: str
) -> None:
    """Raises `UsageError` if an unstated default makes many tokens unreachable."""
    doubts = {
        "do_lower_case": (True, "capitals", lambda token: token != token.lower()),
        "keep_accents": (False, "accents or other combining marks", _has_marks),
    }
    if isinstance(tokenizer, WordPieceTokenizer) and "do_lower_case" in stated:
        del doubts["keep_accents"]  # BERT's option decides both
    special = {tokenizer.id_to_token(i) for i in tokenizer.special_ids}
    special |= {token["content"] for token in tokenizer.added_tokens}
    for option, (default, what, is_useless) in doubts.items():
        if option in stated or getattr(tokenizer, option, None) != default:
            continue
        tokens = [t for t in tokenizer.vocabulary if t not in special and is_useless(t)]
        require(
            len(tokens) <= _MOST_USELESS * tokenizer.vocab_size,
            f"{option}: {path} does not state it, and {len(tokens)} of its "
            f"{tokenizer.vocab_size} tokens have {what}, such as {tokens[:1]}; give "
            f"--{option} or --no{option}, as in its training",
        )


def _has_marks(token: str) -> bool:
    decomposed = unicodedata.normalize("NFKD", token)
    return not decomposed.isascii() and bool(combining_pattern().search(decomposed))


def find_file(folder: str, names: Iterable[str] = IN_FOLDER) -> str:
    """Returns the path of the first existing file of `names`; empty if none exists."""
    paths = [files.join(folder, name) for name in names]
    path = next(filter(files.exists, paths), "")
    other = files.join(folder, WordPieceTokenizer.file_name)
    if path.endswith(".model") and other in paths and files.exists(other):
        logging.warning("%s: is not read, since %s is there, too", other, path)
    return path
