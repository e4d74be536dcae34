"""Big files read and written piece by piece, on this machine or in a bucket.

What `storage.files` does for small whole files. Local paths use the standard library,
so that worker processes need no TensorFlow.
"""

import contextlib
import errno
import glob as local_glob
import os
from collections.abc import Iterator
from typing import IO

from albert_tf.errors import DataError
from albert_tf.storage import files


def open_binary(path: str, mode: str = "rb") -> IO[bytes]:
    """Opens a local or remote file in a binary mode."""
    return _gfile().GFile(path, mode) if files.is_remote(path) else open(path, mode)


def size(path: str) -> int:
    """Size of a file in bytes."""
    if files.is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def is_regular(path: str) -> bool:
    """Whether this is a file that can be read again and again; no pipe or device."""
    return files.is_remote(path) or os.path.isfile(path)


def modified(path: str) -> int:
    """When a file was last changed, in nanoseconds; 0 for a remote one."""
    return 0 if files.is_remote(path) else os.stat(path).st_mtime_ns


def glob(pattern: str) -> list[str]:
    """Sorted paths that match a pattern; a path without wildcards matches itself."""
    if files.is_remote(pattern):
        return sorted(_gfile().glob(pattern))
    if os.path.exists(pattern):
        return [pattern]
    return sorted(local_glob.glob(pattern, recursive=True))


def escape(path: str) -> str:
    """A path as a pattern that matches it alone."""
    return path if files.is_remote(path) else local_glob.escape(path)


def rename(source: str, target: str) -> None:
    """Gives a file its final name, replacing what is there."""
    if files.is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file; a missing one is no error."""
    if files.is_remote(path):
        if files.exists(path):
            _gfile().remove(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def remove_folder(path: str) -> None:
    """Removes a folder of files; a missing one is no error."""
    if not files.is_folder(path):
        return
    if files.is_remote(path):
        _gfile().rmtree(path)
        return
    for name in os.listdir(path):
        remove(os.path.join(path, name))
    os.rmdir(path)


@contextlib.contextmanager
def write_atomically(path: str) -> Iterator[IO[bytes]]:
    """Opens a temporary file that takes the name `path` once all went well.

    Whatever fails inside the block, a full disk included, leaves neither a half `path`
    nor the temporary file. A file that a kill left behind is written over.

    Raises:
        DataError: The disk is full or the folder cannot be written to.
    """
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.partial")
    try:
        with open_binary(partial, "wb") as file:
            yield file
            file.flush()
            if not files.is_remote(partial):
                os.fsync(file.fileno())
        rename(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove(partial)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            if error.errno == errno.ENOSPC:
                reason += "; free some space and run the same command again"
            raise DataError(f"{path}: cannot be written: {reason}") from error
        raise


def _gfile():
    import tensorflow as tf

    return tf.io.gfile
