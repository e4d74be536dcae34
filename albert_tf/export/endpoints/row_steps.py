"""Runs a model over any number of rows, a few at a time.

One request may need many rows: a long text is tagged in several, every choice of a
question has its own. The attention maps of all of them at once would fill the memory of
a server and fail the other requests of the batch, too.
"""

from collections.abc import Callable

import tensorflow as tf

ROWS = 32


def in_steps(
    answer: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    num_rows: tf.Tensor,
    nothing: tf.Tensor,
) -> tf.Tensor:
    """Returns the concatenated answers of all rows.

    Args:
        answer: callable. From the number of the first row and that after the last one,
            int32, to their answers.
        num_rows: int32. Number of rows; may be 0.
        nothing: The answer of no rows, with the shape of the others but for its length.
    """

    def step(start, answers):
        stop = tf.minimum(start + ROWS, num_rows)
        return stop, tf.concat([answers, answer(start, stop)], 0)

    _, answers = tf.while_loop(
        lambda start, _: start < num_rows,
        step,
        (tf.constant(0), nothing),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None, *nothing.shape[1:]]),
        ),
        # Steps at the same time would need the memory that they are to save.
        parallel_iterations=1,
    )
    return answers
