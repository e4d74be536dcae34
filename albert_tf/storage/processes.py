"""Starts worker processes that end with their parent and leave Ctrl-C to it."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator


def context() -> multiprocessing.context.BaseContext:
    """Returns how processes are started.

    Forking a process that runs TensorFlow's threads can hang.
    """
    return multiprocessing.get_context("spawn")


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Starts processes that ignore Ctrl-C; this process receives it afterwards.

    A terminal sends it to all processes, and each worker would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ends this worker when its parent was killed; it would wait for a job forever."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
