"""Choices that hold inside a `with` statement, in the thread that enters it."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

_COMPILE = contextvars.ContextVar("albert_tf_fusion", default=None)


@contextlib.contextmanager
def within(variable: contextvars.ContextVar, value: Any) -> Iterator[None]:
    """Sets a variable to another value inside a `with` statement, in this thread."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def fused_elementwise(
    compile_chain: Callable | None,
) -> contextlib.AbstractContextManager[None]:
    """Compiles the functions marked by `fusible` that are called inside.

    The choice is local to a thread: enter it in the thread that calls the layers. The
    given function compiles a function of tensors; it is called every time, so it should
    cache.
    """
    return within(_COMPILE, compile_chain)


def fusible(function: Callable) -> Callable:
    """Marks a function of tensors that is element-wise and reads no variables."""

    @functools.wraps(function)
    def call(*tensors):
        compile_chain = _COMPILE.get()
        return (compile_chain(function) if compile_chain else function)(*tensors)

    return call
