"""The array operations that masking is written in, for NumPy.

`ops_graph` has the same operations for TensorFlow, eager and in a graph. All work on
whole batches, use only integers (except for one rounding), and give the same bits.

Legend: `B` rows, `N` columns, `M` queries per row.
"""

import functools

import numpy as np


class NumpyOps:
    """The operations in NumPy. Arrays are `[B, N]` unless specified otherwise."""

    where = staticmethod(np.where)
    # Whether anything in the whole array is true.
    any = staticmethod(np.any)
    # Running sum of each row, its own element included, and sum of each row.
    cumsum = staticmethod(functools.partial(np.cumsum, axis=1, dtype=np.int32))
    sum = staticmethod(functools.partial(np.sum, axis=1, dtype=np.int32))
    max = staticmethod(functools.partial(np.max, axis=1))
    sort = staticmethod(functools.partial(np.sort, axis=1))
    # x[b, index[b, m]], `[B, M]`, and table[index] of a table `[K]`.
    take = staticmethod(functools.partial(np.take_along_axis, axis=1))
    lookup = staticmethod(np.take)
    # 0, 1, ..., `[count]`.
    range = staticmethod(functools.partial(np.arange, dtype=np.int32))

    def array(self, values, dtype: str):
        """Returns an array of a dtype; int64 to uint64 keeps the bits."""
        return np.asarray(values).astype(dtype)

    def num_columns(self, x):
        return x.shape[1]

    def shift_right(self, x, count: int):
        """Shifts the bits of uint64 or int64 down."""
        return x >> np.asarray(count, x.dtype)

    def searchsorted(self, rows, values, side: str):
        """Returns insertion points of values in the sorted row of each b, `[B, M]`.

        Suitable for integers of a small range, such as positions.
        """
        low = min(rows.min(), values.min())
        width = int(max(rows.max(), values.max())) - int(low) + 2
        # Small integers: counting the smaller ones for each is faster than a search.
        offset = np.arange(len(rows))[:, None] * width - low + 1
        below = np.bincount((rows + offset).ravel(), minlength=len(rows) * width)
        below = np.cumsum(below.reshape(-1, width), axis=1, dtype=np.int32).ravel()
        return below[values + offset - (side == "left")]

    def scatter_sum(self, values, index, columns):
        """Returns the values of each row summed by column, int32 `[B, columns]`."""
        flat = index + np.arange(len(values))[:, None] * columns
        # As float64, sums of int32 are exact.
        sums = np.bincount(flat.ravel(), values.ravel(), len(values) * columns)
        return sums.astype(np.int32).reshape(len(values), columns)

    def shift(self, x, fill):
        """Shifts each row one to the right and puts `fill` in front."""
        first = np.full((len(x), 1), fill, x.dtype)
        return np.concatenate([first, x[:, :-1]], axis=1)

    def round_half_even(self, x):
        """Rounds float64 to int32 as Python's round does."""
        return np.rint(x).astype(np.int32)

    def while_loop(self, condition, body, state: tuple) -> tuple:
        """Repeats `state = body(*state)` while `condition(*state)`."""
        while condition(*state):
            state = body(*state)
        return state


NUMPY = NumpyOps()
