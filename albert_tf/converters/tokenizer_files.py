"""The file a tokenizer is made of."""

from albert_tf.errors import UsageError
from albert_tf.tokenization import AlbertTokenizer

SPIECE = "spiece.model"
JSON = "tokenizer.json"


def file_of(tokenizer) -> tuple[str, bytes]:
    """Name and content of the file that, with `get_config()`, makes a tokenizer."""
    name = SPIECE if isinstance(tokenizer, AlbertTokenizer) else JSON
    return name, tokenizer.__getstate__()["model"]


def spiece_of(tokenizer, format: str) -> bytes:
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
