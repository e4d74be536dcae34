"""Initial values of weights, and how to do without them."""

import contextlib
import contextvars
from collections.abc import Iterator

import keras
from keras import ops

_SKIP = contextvars.ContextVar("albert_tf_skip_initial_values", default=False)


@contextlib.contextmanager
def without_initial_values() -> Iterator[None]:
    """Makes kernels and tables zero instead of random, for weights soon loaded.

    Drawing 223 million numbers takes longer than reading them, and needs more memory.
    """
    token = _SKIP.set(True)
    try:
        yield
    finally:
        _SKIP.reset(token)


@keras.saving.register_keras_serializable("albert_tf")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """The original's initial values; zeros inside of `without_initial_values`."""

    def __call__(self, shape, dtype=None):
        if _SKIP.get():
            return ops.zeros(shape, dtype=dtype)
        return super().__call__(shape, dtype=dtype)
