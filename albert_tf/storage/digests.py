"""Sizes and sha256 digests of files, as manifests list them."""

import hashlib
import os
from typing import BinaryIO

from albert_tf.storage import files

_BLOCK = 1 << 22


class HashingWriter:
    """A file to write to that keeps the digest of what was written.

    Args:
        file: BinaryIO. Where the data goes.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data) -> int:
        """Writes bytes, or anything with a buffer of bytes such as a memoryview."""
        self._sha256.update(data)
        self._size += len(data)
        self._file.write(data)
        return len(data)

    def digest(self) -> dict[str, int | str]:
        """Returns the size in bytes and the sha256 of the data so far."""
        return {"size": self._size, "sha256": self._sha256.hexdigest()}


def of_file(path: str | os.PathLike) -> dict[str, int | str]:
    """Returns the size in bytes and the sha256 of a file.

    Raises:
        DataError: If the file cannot be read.
    """
    sha256, size = hashlib.sha256(), 0
    with files.reading(path) as f:
        while block := f.read(_BLOCK):
            sha256.update(block)
            size += len(block)
    return {"size": size, "sha256": sha256.hexdigest()}


def of_tree(root: str | os.PathLike) -> dict[str, dict[str, int | str]]:
    """Returns the digests of all files below a local folder, by relative path."""
    root = os.fspath(root)
    return {name: of_file(os.path.join(root, name)) for name in tree(root)}


def tree(root: str | os.PathLike) -> list[str]:
    """Returns the relative paths of all files below a local folder, sorted."""
    root = os.fspath(root)
    return sorted(
        os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
        for folder, _, names in os.walk(root)
        for name in names
    )
