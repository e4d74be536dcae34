"""Operations of data sets: calls of Python, and the order of an epoch.

A data set is computed ahead. Python stops every thread that calls it once the process
is ending, so that the batch at work is never finished, and its iterator, which waits
for it, keeps the process from ending. Code that keeps an iterator in a global variable
would see this now and then.
"""

import atexit
import threading
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

_QUIET_SECONDS = 0.3
_MAX_SECONDS = 10.0


class Calls:
    """Knows whether a data set of this process has called Python recently."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = 0
        self._last = float("-inf")

    def run(self, function: Callable, arguments: Sequence):
        """Returns the result of a function, and records that it ran."""
        with self._lock:
            self._running += 1
        try:
            return function(*arguments)
        finally:
            with self._lock:
                self._running -= 1
                self._last = time.monotonic()

    def wait(self) -> None:
        """Waits until no data set is at work, its buffer being full; at most 10 s."""
        end = time.monotonic() + _MAX_SECONDS
        while time.monotonic() < end and not self._is_quiet():
            time.sleep(0.02)

    def _is_quiet(self) -> bool:
        quiet = time.monotonic() - self._last > _QUIET_SECONDS
        return quiet and not self._running


_CALLS = Calls()
# Runs before Python stops threads.
atexit.register(_CALLS.wait)


def python_op(function: Callable, inputs: Sequence[tf.Tensor], output_types):
    """Returns the outputs of a function of arrays, as `tf.numpy_function` does.

    The operation is declared stateless: under `deterministic`, TensorFlow runs a data
    set with stateful operations one batch at a time, and only when the batch is asked
    for. The outputs must therefore depend on the inputs alone.
    """

    @tf.autograph.experimental.do_not_convert  # nothing to convert, only slow
    def call(*arguments):
        return _CALLS.run(function, arguments)

    return tf.numpy_function(call, inputs, output_types, stateful=False)


def shuffled(rows, size: int, seed: int):
    """Returns the places of rows in their epochs' permutations, and the epochs.

    The order is computed, not stored. `rows` are consecutive numbers.
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
