"""Turns texts into model inputs with TensorFlow operations.

The result equals `inputs`'s; these functions run inside a SavedModel that accepts
strings.

Legend: `B` batch, `T` sequence.

Only core TensorFlow is used. TensorFlow Text has trimmers for the truncation, but
TensorFlow Serving before 2.20 does not know their operations.
"""

import tensorflow as tf

from albert_tf import features
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer


def join_segments(
    tokenizer: Tokenizer,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int,
    step: int = inputs.STEP,
) -> dict[str, tf.Tensor]:
    """Builds `[CLS] A [SEP] B [SEP]` of ragged int32 `[B, None]`, truncated and padded.

    A row without tokens in B has one segment. The result has int32 `[B, T]`
    `token_ids`, `segment_ids`, `padding_mask`, with `T` a multiple of `step`.
    """
    separators, is_pair = tokenizer.pair_separators, second is not None
    inputs.check_max_seq_length(max_seq_length, pairs=is_pair, separators=separators)
    if second is None:
        first = first[:, : max_seq_length - 2]
    else:
        sizes = inputs.kept_lengths(
            first.row_lengths(), second.row_lengths(), max_seq_length, separators, tf
        )
        first, second = first_tokens(first, sizes[0]), first_tokens(second, sizes[1])
    return padded_rows(
        tokenizer, first, second, max_seq_length, step=step, keeps_empty=False
    )


def padded_rows(
    tokenizer: Tokenizer,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_seq_length: int,
    *,
    step: int = inputs.STEP,
    keeps_empty: bool = True,
) -> dict[str, tf.Tensor]:
    """Builds `[CLS] A [SEP] B [SEP]` of segments that fit; see `join_segments`.

    If `keeps_empty`, a B without tokens also gets its `[SEP]`.
    """
    column = tf.ones_like(first.row_starts(), tf.int32)[:, None]
    cls, sep = column * tokenizer.cls_id, column * tokenizer.sep_id
    parts = [cls, first, sep]
    has_segments = tokenizer.pair_separators == 1
    if second is not None:
        ends = [sep] * tokenizer.pair_separators
        if not keeps_empty:
            some = tf.minimum(second.row_lengths(), 1)
            ends = [first_tokens(tf.RaggedTensor.from_tensor(x), some) for x in ends]
        parts += [*ends[1:], second, ends[0]]
    ids = tf.concat(parts, 1)
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    length = rounded_length(tf.reduce_max(lengths), max_seq_length, step)
    mask = tf.sequence_mask(lengths, length, tf.int32)
    first_lengths = tf.cast(first.row_lengths(), tf.int32) + 2
    padded = ids.to_tensor(tokenizer.pad_id, shape=[None, max_seq_length])
    segments = mask - tf.sequence_mask(first_lengths, length, tf.int32)
    return {
        features.TOKEN_IDS: padded[:, :length],
        features.SEGMENT_IDS: segments if has_segments else tf.zeros_like(mask),
        features.PADDING_MASK: mask,
    }


def rounded_length(length: tf.Tensor, longest: int, step: int = inputs.STEP):
    """Does the same as `inputs.rounded_length`, but returns at least one step."""
    return tf.minimum(-(-tf.maximum(length, 1) // step) * step, longest)


def fixed_length_inputs(
    tokenizer: Tokenizer, first, second, length: int
) -> dict[str, tf.Tensor]:
    """Encodes texts `[B]` or one text, padded to one length, as `join_segments`."""
    with tf.init_scope():
        tokenizer.graph  # noqa: B018 - its tables must not be part of a traced function
    first, second = (
        None if texts is None else tf.convert_to_tensor(texts, tf.string)
        for texts in (first, second)
    )
    single = first.shape.rank == 0
    if single:
        first, second = first[None], None if second is None else second[None]
    second = None if second is None else tokenizer(second)
    batch = join_segments(tokenizer, tokenizer(first), second, length, step=length)
    shape = [first.shape[0], length]
    batch = {name: tf.ensure_shape(value, shape) for name, value in batch.items()}
    return {name: value[0] for name, value in batch.items()} if single else batch


def first_tokens(ids: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `counts` (int64 `[B]`) tokens of each row."""
    position = tf.ragged.range(ids.row_lengths()).values
    is_first = position < tf.gather(counts, ids.value_rowids())
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(ids.values, is_first), counts, validate=False
    )
