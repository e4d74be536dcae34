"""Names the files that a tokenizer and its options are stored in, for all formats."""

import json

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.load import OPTIONS as OPTION_NAMES
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

SPIECE = AlbertTokenizer.file_name
JSON = ByteBPETokenizer.file_name
# Hugging Face's name; formats without such a file of their own get it too.
OPTIONS = "tokenizer_config.json"


def file_of(tokenizer: Tokenizer) -> tuple[str, bytes]:
    """Returns name and content of the file that stores a tokenizer's vocabulary."""
    return tokenizer.file_name, tokenizer.model


def spiece_of(tokenizer: Tokenizer, format: str) -> bytes:
    """Returns a tokenizer's SentencePiece model.

    Raises:
        UsageError: If the tokenizer is of another kind, which the format cannot store.
    """
    name, content = file_of(tokenizer)
    if name != SPIECE:
        raise UsageError(
            f"{format} stores SentencePiece tokenizers only, received "
            f"{type(tokenizer).__name__}"
        )
    return content


def write_options(tokenizer: Tokenizer, out: FolderWriter) -> None:
    """Writes the options of a tokenizer, for formats that have no place for them."""
    out.write_json(OPTIONS, tokenizer.get_config())


def stored_options(folder: str) -> dict[str, bool]:
    """Returns the tokenizer's options that a folder names; empty if it names none.

    Raises:
        DataError: If the file is damaged.
    """
    path = files.join(folder, OPTIONS)
    if not files.exists(path):
        return {}
    try:
        values = json.loads(files.read_text(path))
        return {k: values[k] for k in OPTION_NAMES if isinstance(values.get(k), bool)}
    except (json.JSONDecodeError, AttributeError, TypeError, RecursionError):
        raise DataError(f"{path}: not a JSON object") from None
