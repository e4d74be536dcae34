"""Base class of the tokenizers that run in the TensorFlow graph.

Legend: `B` strings.
"""

import tensorflow as tf

from albert_tf.errors import UsageError


class GraphBase(tf.Module):
    """Turns strings into ids; subclasses define `tokenize`."""

    def __init__(self):
        super().__init__(name="graph_tokenizer")

    def __call__(self, texts) -> tf.RaggedTensor:
        """Tokenizes one string or a vector of strings.

        Args:
            texts: string `[B]` or a scalar. Any bytes are accepted.

        Returns:
            Ragged int32 `[B, None]`, or a tensor `[None]` for a scalar.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank == 0:
            return self(texts[None])[0]
        if texts.shape.rank != 1:
            raise UsageError(
                f"texts: expected one string or a vector of strings, "
                f"received {texts.shape}"
            )
        return self.tokenize(texts)


def as_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 by spaces.

    One invalid byte must neither fail the batch nor hide the text after it.
    """
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" ")
    )
