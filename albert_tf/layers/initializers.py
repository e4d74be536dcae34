"""Draws the initial values of weights, or skips drawing them."""

import contextlib
import contextvars
from collections.abc import Iterator

import keras
from keras import ops

_SKIP = contextvars.ContextVar("albert_tf_skip_initial_values", default=False)


@contextlib.contextmanager
def without_initial_values() -> Iterator[None]:
    """Sets kernels and tables to zero instead of random values before loading them.

    Drawing 223 million numbers takes longer and needs more memory than reading them.
    """
    token = _SKIP.set(True)
    try:
        yield
    finally:
        _SKIP.reset(token)


@keras.saving.register_keras_serializable("albert_tf")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """The original's initial values, or zeros within `without_initial_values`."""

    def __call__(self, shape, dtype=None):
        if _SKIP.get():
            return ops.zeros(shape, dtype=dtype)
        return super().__call__(shape, dtype=dtype)
