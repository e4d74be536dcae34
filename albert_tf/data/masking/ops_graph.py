"""The operations of `ops` in TensorFlow, for eager code and tf.data."""

import functools

import tensorflow as tf


class TensorFlowOps:
    """Same names, arguments and bits as `ops.NumpyOps`."""

    where = staticmethod(tf.where)
    any = staticmethod(tf.reduce_any)
    max = staticmethod(functools.partial(tf.reduce_max, axis=1))
    sort = staticmethod(functools.partial(tf.sort, axis=1))
    take = staticmethod(functools.partial(tf.gather, batch_dims=1))
    lookup = staticmethod(tf.gather)
    range = staticmethod(functools.partial(tf.range, dtype=tf.int32))
    searchsorted = staticmethod(tf.searchsorted)
    while_loop = staticmethod(tf.while_loop)

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

    def shift_right(self, x, count: int):
        return tf.bitwise.right_shift(x, tf.constant(count, x.dtype))

    def cumsum(self, x):
        return tf.cumsum(tf.cast(x, tf.int32), axis=1)

    def sum(self, x):
        return tf.reduce_sum(tf.cast(x, tf.int32), axis=1)

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


TENSORFLOW = TensorFlowOps()
