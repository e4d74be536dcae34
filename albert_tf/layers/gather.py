"""Gathers single tokens of a batch.

Legend: `B` batch, `T` sequence, `P` positions, `D` hidden.
"""

from keras import ops


def gather_positions(x, positions):
    """Returns the rows of `x` `[B, T, D]` at `positions` int `[B, P]`: `[B, P, D]`."""
    # Gathers whole rows of a matrix: `take_along_axis` gathers every number by itself.
    B, T, D = ops.shape(x)
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.cast(positions, "int32") + first
    return ops.take(ops.reshape(x, (-1, D)), rows, axis=0)


def gather_places(x, places):
    """Returns the rows of `x` `[B, T, D]` at `places`: `[*places.shape, D]`.

    Args:
        x: `[B, T, D]`.
        places: int of any shape. Numbers of the rows of `[B * T, D]`.
    """
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), places, axis=0)
