"""Loads a tokenizer of any kind from its file or folder."""

import json
import os
from collections.abc import Mapping

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import OPTIONS, AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

_IN_FOLDER = ("spiece.model", "tokenizer.json", "vocab.json")
_OPTION_FILES = {
    "config.json": lambda values: values.get("tokenizer") or {},  # ours
    "tokenizer_config.json": lambda values: values,  # Hugging Face's
}


def load_tokenizer(
    path: str | os.PathLike,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
    **kwargs,
) -> Tokenizer:
    """Loads a tokenizer; the name of its file determines the kind.

    The `spiece.model` of a model folder takes its options from that folder.

    Args:
        path: str or path. A SentencePiece model, a `tokenizer.json` or `vocab.json` of
            byte-level BPE (with `merges.txt` next to it), or a folder with one of them.
        do_lower_case: bool or None. Whether SentencePiece lower-cases text. Default:
            as the model folder says, or else True. Byte-level BPE ignores it and keeps
            text as it is.
        keep_accents: bool or None. Whether SentencePiece keeps accents, tone marks and
            other combining characters. Default: as the model folder says, or else
            False. Byte-level BPE does not accept it.
        **kwargs: Other arguments of `AlbertTokenizer`; byte-level BPE accepts none.

    Raises:
        DataError: If the file does not exist or is not a tokenizer.
        UsageError: If the tokenizer does not accept an argument, or its model folder
            says otherwise.
    """
    path = os.fspath(path)
    if files.is_folder(path):
        path = _find(path)
    given = {"do_lower_case": do_lower_case, "keep_accents": keep_accents, **kwargs}
    given = {name: value for name, value in given.items() if value is not None}
    if path.endswith(".json"):
        given.pop("do_lower_case", None)
        rule = f"{path}: byte-level BPE keeps text as it is and does not accept"
        require(not given, f"{rule} {', '.join(given)}")
        stem = path.removesuffix("vocab.json")
        return ByteBPETokenizer(path, None if stem == path else f"{stem}merges.txt")
    stored = _stored_options(path)
    check_options(given, stored, path)
    tokenizer = AlbertTokenizer(path, **(stored | given))
    if "do_lower_case" not in stored | given:
        _warn_if_cased(tokenizer, path)
    return tokenizer


def check_options(
    given: Mapping[str, bool], known: Mapping[str, bool], source: str
) -> None:
    """Refuses options that contradict what is known about a tokenizer.

    Args:
        given: dict. Options that were requested.
        known: dict. Options that a model was trained with, or records were made with.
        source: str. What says so, for the error.

    Raises:
        UsageError: If they differ.
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


def _warn_if_cased(tokenizer: AlbertTokenizer, path: str) -> None:
    """Logs one line if a vocabulary has tokens that lower-casing makes useless."""
    special = {tokenizer.id_to_token(i) for i in tokenizer.special_ids}
    capitals = [t for t in tokenizer.vocabulary if t != t.lower() and t not in special]
    if len(capitals) > 0.01 * tokenizer.vocab_size:
        logging.warning(
            "%s: text is lower-cased, but %d of its tokens have capitals, such as %r; "
            "--nodo_lower_case keeps case",
            *(path, len(capitals), capitals[0]),
        )


def _stored_options(path: str) -> dict[str, bool]:
    """Returns the options that a model folder keeps with its SentencePiece model."""
    folder, name = os.path.split(path)
    if name != AlbertTokenizer.file_name:
        return {}
    for file, read in _OPTION_FILES.items():
        where = files.join(folder, file)
        if not files.exists(where):
            continue
        data = files.read_bytes(where)
        try:
            values = read(json.loads(data))
            stored = {k: values[k] for k in OPTIONS if isinstance(values.get(k), bool)}
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise DataError(f"{where}: not a JSON object with options") from None
        if stored:
            return stored
    return {}


def _find(folder: str) -> str:
    paths = [files.join(folder, name) for name in _IN_FOLDER]
    found = next(filter(files.exists, paths), None)
    message = f"{folder}: expected one of {', '.join(_IN_FOLDER)}, found none"
    require(found, message, error=DataError)
    return found
