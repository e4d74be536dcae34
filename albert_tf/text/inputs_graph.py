"""Turns texts into model inputs with TensorFlow operations.

It gives the same result as `inputs`, inside a SavedModel that takes strings.

Legend: `B` batch, `T` sequence.

Only core TensorFlow is used. TensorFlow Text has trimmers for the truncation, but
TensorFlow Serving before 2.20 does not know their operations.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf import features
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer


def join_segments(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    max_seq_length: int,
    row_lengths: Sequence[int] | None = None,
) -> dict[str, tf.Tensor]:
    """Builds `[CLS] A [SEP] B [SEP]`, truncated and padded to the same length.

    Args:
        first: int32 `[B, None]`. Tokens of A.
        second: int32 `[B, None]` or None. Tokens of B. A row without any has one
            segment.
        cls_id: int. Id of `[CLS]`.
        sep_id: int. Id of `[SEP]`.
        pad_id: int. Token id used as padding.
        max_seq_length: int. Maximum length of a row, special tokens included.
        row_lengths: Sequence of int or None. The lengths that rows may have, ascending
            to `max_seq_length`. Default: `inputs.length_buckets`.

    Returns:
        dict of int32 `[B, T]`: `token_ids`, `segment_ids`, `padding_mask`. `T`, chosen
        when the graph runs, is the shortest row length that holds all rows.
    """
    inputs.check_max_seq_length(max_seq_length, pairs=second is not None)
    column = tf.ones_like(first.row_starts(), tf.int32)[:, None]
    cls, sep = column * cls_id, column * sep_id
    if second is None:
        first = first[:, : max_seq_length - 2]
        ids = tf.concat([cls, first, sep], axis=1)
    else:
        first, second = _truncate_pair(first, second, max_seq_length)
        last_sep = first_tokens(
            tf.RaggedTensor.from_tensor(sep), tf.minimum(second.row_lengths(), 1)
        )
        ids = tf.concat([cls, first, sep, second, last_sep], axis=1)
    first_lengths = tf.cast(first.row_lengths(), tf.int32) + 2
    return padded_rows(ids, first_lengths, pad_id, max_seq_length, row_lengths)


def padded_rows(
    ids: tf.RaggedTensor,
    first_lengths: tf.Tensor,
    pad_id: int,
    max_seq_length: int,
    row_lengths: Sequence[int] | None = None,
) -> dict[str, tf.Tensor]:
    """Pads rows to the smallest length that holds them.

    Args:
        ids: int32 `[B, None]`. Tokens with special tokens.
        first_lengths: int32 `[B]`. Number of tokens in segment 0.
        pad_id: int. Token id used as padding.
        max_seq_length: int. Maximum length of a row.
        row_lengths: Sequence of int or None. As for `join_segments`.

    Returns:
        dict as of `join_segments`.
    """
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    buckets = tf.constant(row_lengths or inputs.length_buckets(max_seq_length))
    longest = tf.reduce_max(tf.concat([lengths, buckets[:1]], axis=0))
    length = tf.reduce_min(tf.boolean_mask(buckets, buckets >= longest))
    mask = tf.sequence_mask(lengths, length, tf.int32)
    segments = mask - tf.sequence_mask(first_lengths, length, tf.int32)
    padded = ids.to_tensor(pad_id, shape=[None, max_seq_length])[:, :length]
    return {
        features.TOKEN_IDS: padded,
        features.SEGMENT_IDS: segments,
        features.PADDING_MASK: mask,
    }


def make_text_encoder(
    tokenizer: Callable[[tf.Tensor], tf.RaggedTensor], **kwargs
) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns a function from texts (and text pairs) `[B]` to model inputs.

    Args:
        tokenizer: callable. Maps strings to ragged token ids.
        **kwargs: Keyword arguments of `join_segments`.
    """

    def encode(texts, text_pairs=None):
        second = None if text_pairs is None else tokenizer(text_pairs)
        return join_segments(tokenizer(texts), second, **kwargs)

    return encode


def fixed_length_inputs(
    tokenizer: Tokenizer, first, second, length: int
) -> dict[str, tf.Tensor]:
    """Encodes one text or a vector of texts, padded to one length.

    Args:
        tokenizer: `Tokenizer`.
        first: string `[B]` or a scalar.
        second: string `[B]`, a scalar or None. The second texts.
        length: int. `T`.

    Returns:
        dict of int32 `[B, T]`, or `[T]` for scalars; see `join_segments`.
    """
    with tf.init_scope():
        tokenizer.graph  # noqa: B018 - its tables must not be part of a traced function
    first = tf.convert_to_tensor(first, tf.string)
    if second is not None:
        second = tf.convert_to_tensor(second, tf.string)
    single = first.shape.rank == 0
    if single:
        first, second = first[None], None if second is None else second[None]
    encode = make_text_encoder(
        tokenizer,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        max_seq_length=length,
    )
    batch = {}
    for name, value in encode(first, second).items():
        fill = tokenizer.pad_id if name == features.TOKEN_IDS else 0
        value = tf.pad(
            value, [[0, 0], [0, length - tf.shape(value)[1]]], constant_values=fill
        )
        value = tf.ensure_shape(value, [first.shape[0], length])
        batch[name] = value[0] if single else value
    return batch


def _truncate_pair(first, second, max_seq_length):
    """Truncates two ragged tensors as `inputs.encode_texts` does."""
    budget = max_seq_length - 3
    half = budget // 2
    a, b = first.row_lengths(), second.row_lengths()
    keep_a = tf.minimum(a, tf.maximum(budget - b, budget - half))
    keep_a = tf.where(b > 0, keep_a, tf.minimum(a, max_seq_length - 2))
    keep_b = tf.minimum(b, tf.maximum(budget - a, half))
    return first_tokens(first, keep_a), first_tokens(second, keep_b)


def first_tokens(ids: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `counts` int64 `[B]` tokens of each row."""
    position = tf.ragged.range(ids.row_lengths()).values
    kept = position < tf.gather(counts, ids.value_rowids())
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(ids.values, kept), counts, validate=False
    )
