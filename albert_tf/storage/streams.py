"""Reading and writing large files in pieces, on this machine or in a bucket.

The counterpart of `storage.files` for large files, and paths of TensorFlow's
checkpoints. Local paths use the standard library, so that worker processes need no
TensorFlow.
"""

import contextlib
import errno
import fnmatch
import glob as local_glob
import os
import re
import uuid
from collections.abc import Iterator
from typing import IO

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.storage.calls import repeated

_INDEX = re.compile(r"step-(\d+)\.index")
# Number of bytes that are copied at a time.
_BLOCK = 1 << 24
# The form in which `escape` writes one of these characters.
_ESCAPED = re.compile(r"\[([*?[])\]")


def status(path: str) -> files.Status:
    """Returns the status of a file, or raises `DataError` if it does not exist."""
    known_status = files.status(path)
    if known_status is None:
        raise DataError(f"{path}: cannot be read: {os.strerror(errno.ENOENT)}")
    return known_status


def glob(pattern: str) -> list[str]:
    """Returns the sorted paths that match a pattern.

    An existing path matches itself, with any characters in it. `**` matches any
    folders. Raises `DataError` if a folder to search cannot be read.
    """
    if files.exists(pattern):
        return [pattern]
    return sorted(filter(None, set(_matching(pattern))))


def _matching(pattern: str) -> Iterator[str]:
    """Yields matches; Python and TensorFlow would skip folders that do not answer."""
    if not _is_magic(pattern):
        path = _ESCAPED.sub(r"\1", pattern)
        yield from [path] if not path or files.exists(path) else []
        return
    folder, name = os.path.split(pattern)
    for parent in _matching(folder):
        if name == "**":
            yield from _below(parent)
        elif not _is_magic(name):
            yield from _matching(files.join(escape(parent), name))
        elif files.is_folder(parent or "."):
            for match in _visible(parent, name):
                yield files.join(parent, match)


def _visible(folder: str, pattern: str = "*") -> list[str]:
    names = fnmatch.filter(files.list_folder(folder or "."), pattern)
    return [n for n in names if pattern[0] == "." or n[0] != "."]


def _below(folder: str) -> Iterator[str]:
    yield folder
    if files.is_folder(folder or "."):
        for name in _visible(folder):
            yield from _below(files.join(folder, name))


def _is_magic(pattern: str) -> bool:
    return local_glob.has_magic(_ESCAPED.sub("", pattern))


def escape(path: str) -> str:
    """Returns a pattern that matches only this path."""
    return local_glob.escape(path)


@contextlib.contextmanager
def in_memory(prefix: str) -> Iterator[str]:
    """Copies a checkpoint into memory; yields the prefix of the copy.

    After a single failed read, TensorFlow's reader reports that the file is missing or
    damaged, leaves values out, or ends the process; it also takes a path for a pattern.
    The copy is made by calls that are repeated, so that TensorFlow's reports are true
    of the files. Raises `OSError` if a file cannot be read.
    """
    folder, base = os.path.split(prefix)
    copy = f"ram://{uuid.uuid4().hex}/copy"
    copies = {
        files.join(folder, name): copy + name.removeprefix(base)
        for name in files.list_folder(folder or ".")
        if name.startswith((f"{base}.index", f"{base}.data-"))
    }
    try:
        for source, target in copies.items():
            repeated(_copy, source, target)
        yield copy
    finally:
        for target in copies.values():
            files.remove(target)


def _copy(source: str, target: str) -> None:
    import tensorflow as tf

    files.remove(target)  # `ram://` would append
    with files.open_binary(source) as file, tf.io.gfile.GFile(target, "wb") as copy:
        copy.write(b"")  # an empty file is one, too
        while block := file.read(_BLOCK):
            copy.write(block)


def write_atomically(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Opens a temporary file that is renamed to `path` when the block has succeeded.

    The leftover of a killed process is overwritten; see `files.open_atomically`. Raises
    `DataError` if the disk is full or the folder cannot be written to.
    """
    return files.open_atomically(path, error=DataError)


def find_checkpoints(folder: str | os.PathLike) -> dict[int, str]:
    """Returns the prefixes of complete checkpoints by step, the latest first.

    The files themselves are listed, not TensorFlow's file `checkpoint`, which may be
    damaged. TensorFlow moves the index into place after everything else. The folder may
    be missing.
    """
    names = files.list_folder(folder) if files.is_folder(folder) else []
    steps = [int(match[1]) for match in map(_INDEX.fullmatch, names) if match]
    return {n: files.join(folder, f"step-{n}") for n in sorted(steps, reverse=True)}
