"""The file a tokenizer is made of."""

from albert_tf.errors import UsageError
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer import Tokenizer

SPIECE = AlbertTokenizer.file_name
JSON = ByteBPETokenizer.file_name


def file_of(tokenizer: Tokenizer) -> tuple[str, bytes]:
    """Name and content of the file that, with `get_config()`, makes a tokenizer."""
    return tokenizer.file_name, tokenizer.model


def spiece_of(tokenizer: Tokenizer, format: str) -> bytes:
    """A tokenizer's SentencePiece model.

    Raises:
        UsageError: If it is of another kind, which the format cannot hold.
    """
    name, content = file_of(tokenizer)
    if name != SPIECE:
        raise UsageError(
            f"{format} holds SentencePiece tokenizers, not {type(tokenizer).__name__}"
        )
    return content
