"""Sizes and sha256 digests of files, as manifests list them."""

import hashlib
import os
from typing import BinaryIO

from albert_tf.storage import files


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
    with files.reading(path) as f:
        sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        return {"size": f.tell(), "sha256": sha256}


def of_tree(root: str | os.PathLike) -> dict[str, dict[str, int | str]]:
    """Returns the digests of all files below a folder, by relative path."""
    return {name: of_file(files.join(root, name)) for name in tree(root)}


def tree(root: str | os.PathLike) -> list[str]:
    """Returns the relative paths of all files below a folder, sorted.

    Links to folders are left out: they may lead in a circle.
    """
    found = []
    for name in files.list_folder(root):
        inner = files.join(root, name)
        if not files.is_folder(inner):
            found.append(name)
        elif not os.path.islink(inner):
            found += [f"{name}/{below}" for below in tree(inner)]
    return sorted(found)
