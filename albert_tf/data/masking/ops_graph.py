"""The operations of `ops` in TensorFlow, for eager code and tf.data."""

from collections.abc import Callable

import tensorflow as tf


class TensorFlowOps:
    """Same names, arguments and bits as `ops.NumpyOps`."""

    def array(self, values, dtype: str):
        if not tf.is_tensor(values):
            return tf.constant(values, dtype)
        if values.dtype == tf.int64 and dtype == "uint64":
            return tf.bitcast(values, tf.uint64)
        return tf.cast(values, dtype)

    def num_rows(self, x):
        return x.shape[0] or tf.shape(x)[0]

    def num_columns(self, x):
        return x.shape[1] or tf.shape(x)[1]

    def range(self, count):
        return tf.range(count, dtype=tf.int32)

    def where(self, condition, x, y):
        return tf.where(condition, x, y)

    def shift_right(self, x, count: int):
        return tf.bitwise.right_shift(x, tf.constant(count, x.dtype))

    def cumsum(self, x):
        return tf.cumsum(tf.cast(x, tf.int32), axis=1)

    def sum(self, x):
        return tf.reduce_sum(tf.cast(x, tf.int32), axis=1)

    def max(self, x):
        return tf.reduce_max(x, axis=1)

    def any(self, x):
        return tf.reduce_any(x)

    def sort(self, x):
        return tf.sort(x, axis=1)

    def take(self, x, index):
        return tf.gather(x, index, batch_dims=1)

    def lookup(self, table, index):
        return tf.gather(table, index)

    def searchsorted(self, rows, values, side: str):
        return tf.searchsorted(rows, values, side=side)

    def scatter_sum(self, values, index, columns):
        rows = self.num_rows(values)
        flat = index + self.range(rows)[:, None] * columns
        summed = tf.math.unsorted_segment_sum(
            tf.cast(values, tf.int32), flat, rows * columns
        )
        return tf.reshape(summed, [rows, columns])

    def shift(self, x, fill):
        first = tf.fill([self.num_rows(x), 1], tf.constant(fill, x.dtype))
        return tf.concat([first, x[:, :-1]], axis=1)

    def round_half_even(self, x):
        return tf.cast(tf.round(x), tf.int32)

    def while_loop(self, condition: Callable, body: Callable, state: tuple) -> tuple:
        return tf.while_loop(condition, body, state)


TENSORFLOW = TensorFlowOps()
