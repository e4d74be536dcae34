"""Waits for the other workers of a run on several machines, before TensorFlow does.

TensorFlow waits in code that lets no other Python run: no line appears, no signal is
answered, and no other thread notices a time limit. So every worker opens its port and
knocks at those of the others, and TensorFlow begins when all have answered.
"""

import concurrent.futures
import os
import socket
import sys
import time
from collections.abc import Mapping

from albert_tf.errors import DataError

_FIRST_LINE_AFTER = 20.0
_KNOCKS_EVERY = 0.5


def wait_for(addresses: Mapping[str, str], port: int, timeout: float) -> None:
    """Returns when all other workers have opened their ports.

    Args:
        addresses: dict. `host:port` of the other workers, by a name for people.
        port: int. This worker's, which is free again afterwards.
        timeout: float. Seconds to wait; 0: without end.

    Raises:
        DataError: If a worker is not there in time, or the port is in use.
    """
    begun, told, absent = time.monotonic(), "", dict(addresses)
    with _listen(port), concurrent.futures.ThreadPoolExecutor(32) as threads:
        # One that has answered goes on; its port is closed until TensorFlow opens it.
        while absent := _silent(absent, threads):
            seconds = time.monotonic() - begun
            names = ", ".join(f"{name} ({where})" for name, where in absent.items())
            if timeout and seconds >= timeout:
                raise DataError(
                    f"no answer from {names} after {timeout:g} s; give the same "
                    "command to all workers in TF_CONFIG, or raise --worker_timeout"
                )
            if seconds >= _FIRST_LINE_AFTER and names != told:
                told = names
                print(f"waiting for {names}", file=sys.stderr, flush=True)
            time.sleep(_KNOCKS_EVERY)


def _listen(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as e:
        raise DataError(
            f"TF_CONFIG: this worker's port {port} cannot be opened: "
            f"{os.strerror(e.errno)}; an earlier process of the run may still use it"
        ) from None


def _silent(addresses: Mapping[str, str], threads) -> dict[str, str]:
    listens = threads.map(_listens, addresses.values())
    pairs = zip(addresses.items(), listens, strict=True)
    return dict(item for item, there in pairs if not there)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as one:
            # On one machine, a port that nobody has opened can be given to the knock.
            return one.getsockname() != one.getpeername()
    except OSError:
        return False
