"""Turns encoded texts and labels into a `tf.data.Dataset` for `model.fit`.

Legend: `N` examples, `B` batch, `T` sequence.
"""

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.order import shuffled
from albert_tf.errors import UsageError
from albert_tf.text import inputs


def make_classification_dataset(
    encoded: inputs.EncodedTexts,
    label_ids,
    *,
    batch_size: int,
    max_seq_length: int,
    pad_id: int,
    shuffle_seed: int | None = None,
    start_step: int = 0,
    bucketed: bool = True,
) -> tf.data.Dataset:
    """Returns batches of (inputs, labels).

    With a `shuffle_seed` the data set is endless: every epoch is a permutation that
    depends only on the seed and the epoch. A batch may hold the end of one epoch and
    the start of the next, so all batches are full. Without a seed, it is one pass in
    order, whose last batch may be smaller.

    Args:
        encoded: `EncodedTexts`. `N` rows, from `inputs.encode_texts`.
        label_ids: int `[N]`.
        batch_size: int. `B`.
        max_seq_length: int. Length that no row may exceed.
        pad_id: int. Token id used as padding.
        shuffle_seed: int or None. Seed of the permutations.
        start_step: int. Number of batches to skip.
        bucketed: bool. If True, `T` is the smallest of a few lengths that holds the
            batch's longest row. If False, `T` is always `max_seq_length`: one shape,
            for XLA.

    Returns:
        Dataset of (dict of int32 `[B, T]` named as in `features`, int32 `[B]`).

    Raises:
        UsageError: If a size is invalid.
    """
    if batch_size < 1:
        raise UsageError(f"batch_size must be positive, received {batch_size}")
    if len(encoded) != len(label_ids) or not len(encoded):
        raise UsageError(
            f"label_ids: expected one for each of {len(encoded)} texts, at least one, "
            f"received {len(label_ids)}"
        )
    longest = encoded.lengths.max()
    if longest > max_seq_length:
        raise UsageError(
            f"max_seq_length must be at least {longest}, the length of the longest "
            f"row, received {max_seq_length}"
        )
    batch = _Batches(encoded, label_ids, max_seq_length, pad_id, bucketed)
    options = tf.data.Options()
    options.deterministic = True
    count = len(encoded)
    stop = count if shuffle_seed is None else np.iinfo(np.int64).max
    rows = tf.data.Dataset.range(start_step * batch_size, stop)
    rows = rows.batch(batch_size, drop_remainder=shuffle_seed is not None)
    if shuffle_seed is not None:
        rows = rows.map(lambda numbers: shuffled(numbers, count, shuffle_seed)[0])
    dataset = rows.map(batch, num_parallel_calls=2).prefetch(2)
    return dataset.with_options(options)


class _Batches:
    """Turns example numbers `[B]` into a padded batch."""

    def __init__(self, encoded, label_ids, max_seq_length, pad_id, bucketed):
        self.rows = tf.RaggedTensor.from_row_splits(
            tf.constant(encoded.ids), tf.constant(encoded.splits)
        )
        self.first_lengths = tf.constant(encoded.first_lengths)
        self.labels = tf.constant(label_ids, tf.int32)
        self.buckets = tf.constant(inputs.length_buckets(max_seq_length))
        self.max_seq_length = max_seq_length
        self.pad_id = pad_id
        self.bucketed = bucketed

    def __call__(self, numbers):
        ids = tf.gather(self.rows, numbers)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        width = self.max_seq_length
        token_ids = ids.to_tensor(self.pad_id, shape=[None, width])
        if self.bucketed:
            fits = self.buckets >= tf.reduce_max(lengths)
            width = tf.reduce_min(tf.boolean_mask(self.buckets, fits))
            token_ids = token_ids[:, :width]
        mask = tf.sequence_mask(lengths, width, tf.int32)
        first = tf.gather(self.first_lengths, numbers)
        inputs = {
            features.TOKEN_IDS: token_ids,
            features.SEGMENT_IDS: mask - tf.sequence_mask(first, width, tf.int32),
            features.PADDING_MASK: mask,
        }
        for name, value in inputs.items():
            # XLA needs shapes that are known when the graph is built.
            width = None if self.bucketed else self.max_seq_length
            inputs[name] = tf.ensure_shape(value, [numbers.shape[0], width])
        return inputs, tf.gather(self.labels, numbers)
