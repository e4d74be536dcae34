"""Reading and writing large files in pieces, on this machine or in a bucket.

What `storage.files` does for small whole files. Local paths use the standard library,
so that worker processes need no TensorFlow.
"""

import contextlib
import glob as local_glob
import os
from typing import IO

from albert_tf.errors import DataError
from albert_tf.storage import files


def size(path: str) -> int:
    """Returns the size of a file in bytes."""
    if files.is_remote(path):
        return files.gfile(path).stat(path).length
    return os.path.getsize(path)


def is_regular(path: str) -> bool:
    """Returns whether a path can be read repeatedly: not a pipe or a device."""
    return files.is_remote(path) or os.path.isfile(path)


def modified(path: str) -> int:
    """Returns the modification time in nanoseconds; 0 where none is kept."""
    if files.is_remote(path):
        return files.gfile(path).stat(path).mtime_nsec
    return os.stat(path).st_mtime_ns


def glob(pattern: str) -> list[str]:
    """Returns the sorted paths that match a pattern.

    An existing path matches itself, whatever characters are in it.
    """
    if files.is_remote(pattern):
        return sorted(files.gfile(pattern).glob(pattern))
    if os.path.exists(pattern):
        return [pattern]
    return sorted(local_glob.glob(pattern, recursive=True))


def escape(path: str) -> str:
    """Returns a pattern that matches only this path."""
    return path if files.is_remote(path) else local_glob.escape(path)


def remove_folder(path: str) -> None:
    """Removes a folder of files if it exists."""
    if not files.is_folder(path):
        return
    if files.is_remote(path):
        files.gfile(path).rmtree(path)
        return
    for name in os.listdir(path):
        files.remove(os.path.join(path, name))
    os.rmdir(path)


def write_atomically(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Opens a temporary file that is renamed to `path` when the block has succeeded.

    The file that a killed process left behind is overwritten; see
    `files.open_atomically`.

    Raises:
        DataError: If the disk is full or the folder cannot be written to.
    """
    return files.open_atomically(path, error=DataError)
