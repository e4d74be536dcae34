"""Strings to model inputs inside a SavedModel, with bounded work for any bytes.

Legend: `B` batch, `T` sequence.
"""

import tensorflow as tf

from albert_tf.text import inputs_graph, normalization
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_graph import as_utf8

# A server accepts messages of any size and one batch for many clients: what one text
# may cost must be bounded. First the raw bytes (reading costs little), then, once
# runs of blanks are one blank, what goes through the Unicode tables.
MAX_RAW_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 16


class TextInputs(tf.Module):
    """Turns texts and pairs of texts into model inputs.

    Attach it to what is exported (`archive.track`), or the vocabulary is lost.

    Args:
        tokenizer: `Tokenizer`.
        max_seq_length: int. Longest row, special tokens included.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(name="text_inputs")
        self.graph_tokenizer = tokenizer.graph
        self.max_seq_length = max_seq_length
        bound = bounded if tokenizer.collapses_white_space else bounded_exact
        self._pack = inputs_graph.text_packer(
            lambda texts: self.graph_tokenizer(bound(texts)),
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
            max_seq_length=max_seq_length,
        )

    def __call__(self, texts, text_pairs=None) -> dict[str, tf.Tensor]:
        """Packs strings `[B]`; see `packing_graph.pack_ids`.

        Any bytes are a text: NUL and what is not UTF-8 count as blanks, so that no
        text makes the whole batch fail and nothing after such a byte is hidden.
        """
        return self._pack(texts, text_pairs)


def bounded(texts: tf.Tensor) -> tf.Tensor:
    """Texts of at most `MAX_TEXT_BYTES`, blanks and NULs collapsed before the cut."""
    texts = tf.strings.substr(texts, 0, MAX_RAW_BYTES)
    # Before the white space is looked for: an invalid byte would end the match.
    texts = as_utf8(texts)
    texts = tf.strings.regex_replace(texts, r"\x00+", " ")
    blanks = normalization.white_space_pattern()
    texts = tf.strings.strip(tf.strings.regex_replace(texts, blanks, " "))
    # The cut may split a character; the tokenizer takes its first bytes for a blank.
    return tf.strings.substr(texts, 0, MAX_TEXT_BYTES)


def bounded_exact(texts: tf.Tensor) -> tf.Tensor:
    """The first `MAX_TEXT_BYTES` of texts, for a tokenizer to which blanks matter."""
    return tf.strings.substr(texts, 0, MAX_TEXT_BYTES)


def token_inputs(
    token_ids: tf.Tensor,
    lengths: tf.Tensor,
    segment_ids: tf.Tensor,
    *,
    vocab_size: int,
    type_vocab_size: int,
    max_positions: int,
) -> dict[str, tf.Tensor]:
    """Model inputs from tokens that a client made.

    The mask comes from `lengths`: a server that merges requests pads a matrix with
    its first element (`pad_variable_length_inputs`), so a mask would be padded with 1.

    Args:
        token_ids: int32 `[B, T]`.
        lengths: int32 `[B]`, real tokens of each row.
        segment_ids: int32 `[B, T]`.
        vocab_size, type_vocab_size, max_positions: int. Of the model.

    Raises:
        InvalidArgumentError: When run, if a value is out of range; says which.
    """
    width = tf.shape(token_ids)[1]
    mask = tf.sequence_mask(lengths, width, tf.int32)
    token_ids, segment_ids = token_ids * mask, segment_ids * mask
    rules = [
        (width <= max_positions, f"token_ids: at most {max_positions} columns"),
        (_within(lengths, 1, width + 1), "lengths: from 1 to the columns of token_ids"),
        (_within(token_ids, 0, vocab_size), f"token_ids: from 0 to {vocab_size - 1}"),
        (
            _within(segment_ids, 0, type_vocab_size),
            f"segment_ids: from 0 to {type_vocab_size - 1}",
        ),
    ]
    checks = [tf.debugging.Assert(rule, [message]) for rule, message in rules]
    with tf.control_dependencies(checks):
        return {
            "token_ids": tf.identity(token_ids),
            "segment_ids": segment_ids,
            "padding_mask": mask,
        }


def _within(values, low, high) -> tf.Tensor:
    return tf.reduce_all((values >= low) & (values < high))
