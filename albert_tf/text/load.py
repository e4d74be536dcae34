"""One door to every kind of tokenizer."""

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
    """Loads a tokenizer of the kind its file has.

    Args:
        path: A SentencePiece model, a `tokenizer.json` or `vocab.json` of byte-level
            BPE (`merges.txt` beside it), or a folder with one of them.
        do_lower_case: Of SentencePiece; byte-level BPE keeps text as it is.
        **kwargs: Further arguments of `AlbertTokenizer`; byte-level BPE has none.

    Raises:
        DataError: If there is no such file, or it is of no known kind.
        UsageError: If the kind takes no such argument.
    """
    path = os.fspath(path)
    if files.is_folder(path):
        path = _find(path)
    if not path.endswith(".json"):
        return AlbertTokenizer(path, do_lower_case, **kwargs)
    if kwargs:
        raise UsageError(
            f"{path}: byte-level BPE keeps text as it is and takes no "
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
