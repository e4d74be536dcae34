"""Shuffles the examples of an epoch without a table of their order."""

import tensorflow as tf


def shuffled(rows, size: int, seed: int):
    """Returns the place of each row of the endless stream in its epoch's permutation.

    Args:
        rows: int64 `[n]`. Consecutive numbers.
        size: int. N.
        seed: int. Seed of the permutations.

    Returns:
        int64 `[n]` numbers in `[0, N)`, and int64 `[n]` epochs.
    """
    epochs, places = rows // size, rows % size
    num_epochs = (rows.shape[0] - 1) // size + 2

    def permuted(epoch):
        return tf.random.experimental.index_shuffle(
            places, tf.stack([tf.constant(seed, tf.int64), epoch]), size - 1
        )

    first = epochs[0]
    every = tf.map_fn(permuted, first + tf.range(num_epochs, dtype=tf.int64))
    numbers = tf.gather(tf.transpose(every), epochs - first, batch_dims=1)
    return tf.ensure_shape(numbers, rows.shape), epochs
