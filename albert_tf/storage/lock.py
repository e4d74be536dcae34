"""Keeps two processes from writing one run folder at the same time.

The filelock package's locks work on one host only, and not in buckets.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

LOCK_FILE = ".lock"
_RENEWED_AFTER = 60.0
_STALE_AFTER = 600.0
# A lock is empty for a moment after its creation.
_WRITTEN_WITHIN = 0.5


@contextlib.contextmanager
def locked(folder: str | os.PathLike) -> Iterator[None]:
    """Holds the lock of a folder inside a `with` statement.

    The lock is a file that names this host and process, and is rewritten every minute.
    The lock of a process of this host that no longer runs is taken over at once, and
    the lock of another host when it has not been renewed for ten minutes, so that a run
    that was killed can be resumed.

    On a local file system only one process obtains a free lock, because the file is
    created exclusively. In a bucket, two processes that start at the same moment may
    both obtain it, because TensorFlow's file systems cannot create a file only if it
    does not exist. The same holds for two machines with a mounted bucket that does not
    keep that promise (s3fs), and, anywhere, for two processes that take over the same
    stale lock. A process that starts later is rejected. Hosts of the same name, as
    containers may have, count as one host. The folder must exist. Raises `UsageError`
    if another process holds the lock.
    """
    path = files.join(folder, LOCK_FILE)
    owner = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": _start_time(os.getpid()),
        "id": uuid.uuid4().hex,
    }
    _take(path, owner)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, owner, ended), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        # A lock that cannot be removed is stale from now on.
        with contextlib.suppress(DataError, OSError):
            if files.read_record(path).get("id") == owner["id"]:
                files.remove(path)


@contextlib.contextmanager
def locked_workplace(folder: str | os.PathLike) -> Iterator[None]:
    """Holds the lock of a folder of unfinished work inside a `with` statement.

    The folder is created if necessary, and removed at the end if it is empty. Raises
    `UsageError` if another process holds the lock, or the folder cannot be created.
    """
    files.make_folder(folder)
    try:
        with locked(folder):
            yield
    finally:
        files.remove_empty_folder(folder)


def check_free(folder: str | os.PathLike) -> None:
    """Raises `UsageError`, before work starts, if another process holds a folder."""
    path = files.join(folder, LOCK_FILE)
    if files.exists(path):
        _check_stale(path, socket.gethostname())


def _renew(path: str, owner: dict[str, Any], ended: threading.Event) -> None:
    """Rewrites a lock periodically, as long as it belongs to its owner."""
    while not ended.wait(_RENEWED_AFTER):
        # Errors such as a full disk are reported by code that writes important data.
        with contextlib.suppress(DataError, UsageError):
            if files.read_record(path).get("id") != owner["id"]:
                return
            files.write_text(path, _text(owner))


def _take(path: str, owner: dict[str, Any]) -> None:
    if files.exists(path):
        _check_stale(path, owner["host"])
        files.remove(path)
    try:
        if files.is_remote(path):
            files.write_text(path, _text(owner))
        else:
            with open(path, "x", encoding="utf-8") as file:
                file.write(_text(owner))
    except FileExistsError:
        _refuse(path, _owner_of(path))
    except OSError as e:
        raise files.unwritable(path, e) from None
    # Another process may have found the same stale lock.
    if files.read_record(path).get("id") != owner["id"]:
        _refuse(path, files.read_record(path))


def _owner_of(path: str) -> dict[str, Any]:
    """Returns the owner of a lock; nothing if the file is gone or damaged."""
    owner = files.read_record(path)
    if not owner and files.exists(path):
        time.sleep(_WRITTEN_WITHIN)
        owner = files.read_record(path)
    return owner


def _check_stale(path: str, host: str) -> None:
    """Raises `UsageError` unless the writer of a lock has ended, as far as known."""
    owner = _owner_of(path)
    process = owner.get("process")
    if owner and owner.get("host") != host:
        stale = time.time() - owner.get("renewed", 0) > _STALE_AFTER
    else:
        stale = not (isinstance(process, int) and _is_running(process, owner))
    if not stale:
        _refuse(path, owner)


def _refuse(path: str, owner: dict[str, Any]) -> None:
    raise UsageError(
        f"{os.path.dirname(path)}: process {owner.get('process')} on host "
        f"{owner.get('host')} is writing to this folder; if it has ended, remove {path}"
    )


def _is_running(process: int, owner: dict[str, Any]) -> bool:
    """Returns whether a process of this host still is the writer of a lock."""
    started = owner.get("started")
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to another user
    return not started or started == _start_time(process)


def _text(owner: dict[str, Any]) -> str:
    # Not the time of the file, which some file systems do not record.
    return json.dumps({**owner, "renewed": time.time()}) + "\n"


def _start_time(process: int) -> str:
    """Returns the start time of a process in ticks, or "" if it is unknown."""
    # The number of a process that has ended may be reused.
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
