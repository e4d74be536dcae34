"""Compiles chains of element-wise operations into one, where a training step asks.

On a CPU, TensorFlow passes over the memory once for every operation. XLA makes one loop
of them, but its matrix products are slower than oneDNN's, so that compiling the whole
step loses more than it gains. Only the chains between the products are compiled here.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

_COMPILE = contextvars.ContextVar("albert_tf_fusion", default=None)


@contextlib.contextmanager
def fused_elementwise(compile_chain: Callable | None) -> Iterator[None]:
    """Compiles the functions marked by `fusible` that are called inside.

    Every thread has its own state: enter it in the thread that calls the layers.

    Args:
        compile_chain: Function that takes a function of tensors and returns it
            compiled; called every time, so it should remember. None changes nothing.
    """
    token = _COMPILE.set(compile_chain)
    try:
        yield
    finally:
        _COMPILE.reset(token)


def fusible(function: Callable) -> Callable:
    """Marks a function of tensors, element-wise and without variables."""

    @functools.wraps(function)
    def call(*tensors):
        compile_chain = _COMPILE.get()
        return (compile_chain(function) if compile_chain else function)(*tensors)

    return call
