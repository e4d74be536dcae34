"""Runs a model over any number of rows, a few of similar length at a time.

One request may need many rows: it has many texts, a long text is tagged in several
rows, or every choice of a question has its own row. All of them at once would fill the
memory of a server and also fail the other requests of the batch. Rows are padded to the
longest of their step, so a long row would lengthen many short ones.

Legend: `R` rows, `T` sequence, `n` rows of a step, `V` values of all rows.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf import features

# Rows of a step, and their tokens; attention maps then need 100 MB in base.
ROWS = 32
_TOKENS = 4096
# A step with fewer tokens takes rows of any length: its time depends on the calls.
_FEW_TOKENS = 512
# Row lengths are multiples of this, because each new shape has a cost.
_MULTIPLE = 16


def in_steps(
    answer: Callable[[tf.Tensor, tf.Tensor], Any],
    lengths: tf.Tensor,
    nothing: Any,
    counts: tf.Tensor | None = None,
    *,
    rows: int = ROWS,
) -> Any:
    """Returns the concatenated answers of all rows, in the order of the rows.

    Args:
        answer: callable. From the indices of rows, int32 `[n]`, and a width that holds
            them to a structure of tensors, `[n, ...]`.
        lengths: int32 `[R]`. Tokens of each row, at least 1; `R` may be 0.
        nothing: The answer for zero rows, with the same shapes except for the length.
        counts: int `[R]` or None. Number of values of each row in its answers, which
            are then `[V, ...]`. Default: one.
    """
    num_rows = tf.size(lengths)
    # Of rows of equal length, the first one comes first.
    longest, order = tf.math.top_k(lengths, num_rows)

    def step(start, answers):
        width = (longest[start] + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
        most = tf.clip_by_value(_TOKENS // width, 1, rows)
        least = tf.clip_by_value(_FEW_TOKENS // width, 1, rows)
        similar = tf.reduce_sum(
            tf.cast(longest[start : start + most] > width // 2, tf.int32)
        )
        stop = tf.minimum(start + tf.maximum(similar, least), num_rows)
        new = answer(order[start:stop], width)
        joined = tf.nest.map_structure(lambda *x: tf.concat(x, 0), answers, new)
        return stop, joined

    shapes = tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]]), nothing
    )
    _, answers = tf.while_loop(
        lambda start, _: start < num_rows,
        step,
        (tf.constant(0), nothing),
        shape_invariants=(tf.TensorShape([]), shapes),
        # Parallel steps would need the memory that stepping is meant to save.
        parallel_iterations=1,
    )
    if counts is not None:
        values = tf.range(tf.reduce_sum(tf.cast(counts, tf.int32)))
        values = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
        order = tf.gather(values, order).values
    places = tf.tensor_scatter_nd_update(
        tf.zeros_like(order), order[:, None], tf.range(tf.size(order))
    )
    return tf.nest.map_structure(lambda x: tf.gather(x, places), answers)


def run_padded(
    answer: Callable[[dict[str, tf.Tensor]], Any],
    inputs: dict[str, tf.Tensor],
    nothing: Any,
    counts: tf.Tensor | None = None,
    *,
    least: int | tf.Tensor = 1,
    **by_row: tf.Tensor,
) -> Any:
    """Returns the answers to padded rows of inputs, int32 `[R, T]`; see `in_steps`.

    `answer` is called with the inputs and other values `[R, ...]`, `by_row`. A step has
    at least `least` columns; `T` if answers have them.
    """
    lengths = tf.maximum(tf.reduce_sum(inputs[features.PADDING_MASK], 1), least)

    def of_rows(rows, width):
        part = {name: tf.gather(x, rows)[:, :width] for name, x in inputs.items()}
        others = {name: tf.gather(x, rows) for name, x in by_row.items()}
        return answer(part, **others)

    return in_steps(of_rows, lengths, nothing, counts)
