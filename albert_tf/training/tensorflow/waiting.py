"""Says which worker a run on several machines waits for, and ends the wait."""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping

_FIRST_LINE_AFTER = 20.0
_ASKED_EVERY = 5.0


@contextlib.contextmanager
def waiting_for(addresses: Mapping[str, str], timeout: float) -> Iterator[None]:
    """Watches a `with` statement that blocks until all workers are there.

    TensorFlow waits for an hour and says nothing, in code that Python cannot
    interrupt, so the end of the wait is the end of the process: exit code 1, after one
    line. Nothing is written before a run has all its workers.

    Args:
        addresses: dict. `host:port` of the other workers, by a name for people.
        timeout: float. Seconds to wait; 0: as long as TensorFlow does.
    """
    ended = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(dict(addresses), timeout, ended), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()


def _watch(
    addresses: Mapping[str, str], timeout: float, ended: threading.Event
) -> None:
    begun, told = time.monotonic(), ""
    while not ended.wait(min(_ASKED_EVERY, timeout or _ASKED_EVERY)):
        seconds = time.monotonic() - begun
        over = timeout and seconds >= timeout
        if not over and seconds < _FIRST_LINE_AFTER:
            continue
        absent = [f"{n} ({a})" for n, a in addresses.items() if not _listens(a)]
        if over and not ended.is_set():
            who = ", ".join(absent) or "a worker that accepts connections"
            _say(
                f"error: no answer from {who} after {timeout:g} s; give the same "
                "command to all workers in TF_CONFIG, or raise --worker_timeout"
            )
            os._exit(1)
        line = f"waiting for {', '.join(absent)}" if absent else ""
        if line != told and not ended.is_set():
            told = line
            if line:
                _say(line)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except OSError:
        return False
