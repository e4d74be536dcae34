"""Names the file that a tokenizer is stored in, for all formats."""

from albert_tf.errors import UsageError
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

SPIECE = AlbertTokenizer.file_name
JSON = ByteBPETokenizer.file_name


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
