"""What tokenizers in the graph have in common.

Legend: `B` strings.
"""

import tensorflow as tf

from albert_tf.errors import UsageError


class GraphBase(tf.Module):
    """Strings to ids in the graph; a kind has `tokenize`."""

    def __init__(self):
        super().__init__(name="graph_tokenizer")

    def __call__(self, texts) -> tf.RaggedTensor:
        """Tokenizes.

        Args:
            texts: string `[B]` (any bytes) or a scalar.

        Returns:
            int32 `[B, None]` ragged; a `[None]` tensor for a scalar.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank == 0:
            return self(texts[None])[0]
        if texts.shape.rank != 1:
            raise UsageError(
                f"texts: expected one string or a vector of strings, got {texts.shape}"
            )
        return self.tokenize(texts)


def as_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Strings in which a space stands for what is not UTF-8.

    One invalid byte must neither fail the batch nor hide what follows it.
    """
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" ")
    )
