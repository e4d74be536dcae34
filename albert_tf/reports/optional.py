"""Lets a run go on when what people look at cannot be drawn."""

import contextlib
from collections.abc import Iterator

from absl import logging


@contextlib.contextmanager
def drawn_if_possible(name: str) -> Iterator[None]:
    """Logs a failure instead of raising it: no picture is worth a trained model.

    Args:
        name: str. Name of the file that is drawn, for the log.
    """
    try:
        yield
    except Exception as e:
        reason = " ".join(str(e).split())
        logging.warning("%s: not written: %s: %s", name, type(e).__name__, reason)
