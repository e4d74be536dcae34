"""Loads a tokenizer of any kind from its file or folder."""

import os

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

_IN_FOLDER = ("spiece.model", "tokenizer.json", "vocab.json")


def load_tokenizer(
    path: str | os.PathLike, do_lower_case: bool = True, **kwargs
) -> Tokenizer:
    """Loads a tokenizer; the name of its file determines the kind.

    Args:
        path: str or path. A SentencePiece model, a `tokenizer.json` or `vocab.json` of
            byte-level BPE (with `merges.txt` beside it), or a folder with one of them.
        do_lower_case: bool. Whether SentencePiece lower-cases text. Byte-level BPE
            ignores it and keeps text as it is.
        **kwargs: Other arguments of `AlbertTokenizer`; byte-level BPE accepts none.

    Raises:
        DataError: If the file does not exist or is not a tokenizer.
        UsageError: If the tokenizer does not accept an argument.
    """
    path = os.fspath(path)
    if files.is_folder(path):
        path = _find(path)
    if not path.endswith(".json"):
        return AlbertTokenizer(path, do_lower_case, **kwargs)
    if kwargs:
        raise UsageError(
            f"{path}: byte-level BPE keeps text as it is and does not accept "
            f"{', '.join(kwargs)}"
        )
    if os.path.basename(path).endswith("vocab.json"):
        merges = path.removesuffix("vocab.json") + "merges.txt"
        return ByteBPETokenizer(path, merges)
    return ByteBPETokenizer(path)


def _find(folder: str) -> str:
    for name in _IN_FOLDER:
        path = files.join(folder, name)
        if files.exists(path):
            return path
    raise DataError(f"{folder}: expected one of {', '.join(_IN_FOLDER)}, found none")
