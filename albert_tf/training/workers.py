"""The workers of a run: finds them, waits until all are there, compares them.

An engine waits for other workers in code that lets no other Python run: no line
appears, no signal is handled, no thread notices a time limit. So every worker first
opens its port and connects to the others'; the engine begins when all have answered.

Workers exchange gradients, never weights: if one of them starts from other weights or
at another step, nothing fails, and the chief saves a model that no single run made. So
they first compare what they are about to compute.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import DataError, require


class Cluster(NamedTuple):
    """The processes that train one model together, as TF_CONFIG lists them.

    Attributes:
        workers: dict. `host:port` by name, such as "worker 0"; the chief's first.
    """

    workers: dict[str, str]
    own: str


def find_cluster(timeout: float) -> Cluster:
    """Returns the cluster in TF_CONFIG, once all are there; see `wait_for`."""
    cluster = _described()
    own = cluster.workers[cluster.own]
    others = {k: where for k, where in cluster.workers.items() if k != cluster.own}
    wait_for(others, int(own.rpartition(":")[2]), timeout)
    return cluster


def _described() -> Cluster:
    text, cluster = os.environ.get("TF_CONFIG", ""), {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        config = json.loads(text)
        task, index = config["task"].get("type", "worker"), config["task"]["index"]
        jobs = [job for job in ("chief", "worker") if job in config["cluster"]]
        cluster = {job: list(config["cluster"][job]) for job in jobs}
    message = (
        "--distribution=multi_worker requires the environment variable TF_CONFIG with "
        "cluster.worker and task.index"
    )
    require(cluster.get("worker"), message, text)
    names = ", ".join(cluster)
    need = f"TF_CONFIG: task.type must be one of {names}, the jobs of cluster"
    require(task in cluster, need, task)
    count = len(cluster[task])
    message = (
        f"TF_CONFIG: task.index must be from 0 to {count - 1}, for the {count} of "
        f"cluster.{task}"
    )
    require(type(index) is int and 0 <= index < count, message, index)
    workers = {}
    for job in cluster:
        for number, address in enumerate(cluster[job]):
            fits = re.fullmatch(r".+:\d+", str(address))
            require(fits, f"TF_CONFIG: cluster.{job} must hold host:port", address)
            workers[f"{job} {number}"] = address
    return Cluster(workers, f"{task} {index}")


_FIRST_LINE_AFTER = 20.0
_KNOCKS_EVERY = 0.5


def wait_for(addresses: Mapping[str, str], port: int, timeout: float) -> None:
    """Returns when all other workers, `host:port` by name, have opened their ports.

    Raises `DataError` if one is not there after `timeout` seconds (0: no limit), or
    this worker's port is in use.
    """
    start, told, absent = time.monotonic(), "", dict(addresses)
    with listen(port), concurrent.futures.ThreadPoolExecutor(32) as threads:
        # A worker that has answered goes on, and its port stays closed until TensorFlow
        # opens it.
        while True:
            there = dict(
                zip(absent, threads.map(_listens, absent.values()), strict=True)
            )
            absent = {name: absent[name] for name in absent if not there[name]}
            if not absent:
                return
            seconds = time.monotonic() - start
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


def listen(port: int) -> socket.socket:
    """Opens a port for other workers, or raises `DataError` if it is in use."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as e:
        raise DataError(
            f"TF_CONFIG: this worker's port {port} cannot be opened: "
            f"{os.strerror(e.errno)}; an earlier process of the run may still use it"
        ) from None


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as one:
            # On one machine, an unopened port may be assigned to this very connection.
            return one.getsockname() != one.getpeername()
    except OSError:
        return False


# Exchanged rows are padded to multiples of this, so that few graphs are needed.
_BLOCK = 4096
_MOST_NAMED = 4


def check_equal(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises the same `DataError` in all workers if their facts differ.

    Each row holds a worker's facts by a title for people, in the order of importance:
    values ready for JSON, digests, or dicts of these.
    """
    rows = list(map(_flat, rows))
    diffs = []
    for title in dict.fromkeys(title for row in rows for title in row):
        groups: dict[str, list[str]] = {}
        for worker, row in enumerate(rows):
            groups.setdefault(str(row.get(title)), []).append(str(worker))
        if len(groups) > 1:
            parts = [f"worker {', '.join(g)}: {v:.40}" for v, g in groups.items()]
            diffs.append(f"{title} ({'; '.join(parts)})")
    if len(diffs) > _MOST_NAMED:
        diffs[_MOST_NAMED:] = [f"{len(diffs) - _MOST_NAMED} more"]
    need = (
        f"the workers differ in their {', '.join(diffs)}; give all of them the same "
        "packages, flags and files, and an --output_dir that all of them see"
    )
    require(not diffs, need, error=DataError)


def share_by(
    gather: Callable[[np.ndarray], np.ndarray], value: Any, copies: int = 1
) -> list[Any]:
    """Returns the values, ready for JSON, of all workers, the chief's first, to all.

    `gather` maps a row of numbers `[n]` to the rows of all, `[workers * copies, n]`.
    Every worker must call it at the same point.
    """
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = gather(np.array([len(text)], np.float32))[:, 0].astype(int)
    row = np.zeros(whole_blocks(max(lengths)), np.float32)
    row[: len(text)] = text
    rows = gather(row).astype(np.uint8)
    return [
        json.loads(row[:length].tobytes())
        for row, length in list(zip(rows, lengths, strict=True))[::copies]
    ]


def whole_blocks(size: int) -> int:
    """Returns the length of an exchanged row that has room for `size` numbers."""
    return -(-size // _BLOCK) * _BLOCK


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts with inner dicts flattened under both titles."""
    flat: dict[str, Any] = {}
    for title, value in facts.items():
        inner = value if isinstance(value, dict) else {"": value}
        flat |= {f"{title} {name}".strip(): v for name, v in inner.items()}
    return flat


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns a sha256 of the names and values of arrays."""
    sha256 = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        sha256.update(f"{name} {value.shape}".encode())
        sha256.update(np.ascontiguousarray(value).tobytes())
    return sha256.hexdigest()
