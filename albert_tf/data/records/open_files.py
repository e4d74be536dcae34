"""Random access to record files: few stay open, and remote ones are copied.

A bucket answers a read of one record with half a megabyte or more, and only after a
round trip, while training reads records in random order, again in every epoch. A whole
file is therefore copied as soon as reading single records from it has cost a tenth of
its size; a few records are read directly. The copies are in one temporary file, which
has no name, so its space is freed however the process ends.
"""

import functools
import mmap
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from absl import logging

from albert_tf.errors import DataError
from albert_tf.storage import files

# A process may open about a thousand files; the others remain for its other parts.
MAX_OPEN = 256
# TensorFlow reads at least this much when a file is read at a new position.
READ_AHEAD = 512 << 10
# One thread copies this many bytes; a typical shard is as large.
_PIECE = 128 << 20
_BLOCK = 4 << 20
_THREADS = 8


class OpenFiles:
    """Random access to files, of which the most recently used ones stay open.

    `sizes` are in bytes.
    """

    def __init__(self, paths: Sequence[str], sizes: Sequence[int]):
        self._paths = paths
        self._sizes = sizes
        self._map = functools.lru_cache(MAX_OPEN)(_map)
        self._remote = {n for n, path in enumerate(paths) if files.is_remote(path)}
        self._spent: Counter[int] = Counter()
        self._starts: dict[int, int] = {}  # of the files that are copied
        self._copies: IO[bytes] | None = None
        self._end = 0
        self._lock = threading.Lock()

    def __reduce__(self):
        return OpenFiles, (self._paths, self._sizes)

    def expect(self, numbers: Iterable[int]) -> None:
        """Announces reads, so that heavily read remote files are copied first.

        `numbers` holds the index of a file in `paths` once for each range to be read.
        Raises `DataError` if a file cannot be copied.
        """
        if len(self._starts) == len(self._remote):
            return
        counts = Counter(n for n in numbers if n in self._remote)
        with self._lock:
            new = []
            for number in counts.keys() - self._starts.keys():
                self._spent[number] += counts[number] * READ_AHEAD
                if self._spent[number] > self._sizes[number] // 10:
                    new.append(number)
            if new:
                self._copy(sorted(new))

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Reads a range of bytes of file `number`; the range is shorter at its end.

        Raises `DataError` if the file cannot be read.
        """
        path = self._paths[number]
        try:
            if number not in self._remote:
                return self._map(path)[offset : offset + size]
            start = self._starts.get(number)
            if start is not None:
                return os.pread(self._copies.fileno(), size, start + offset)
            with files.open_binary(path) as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {files.reason_of(error)}"
            ) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise DataError(f"{path}: cannot be read: {error}") from error

    def _copy(self, numbers: Sequence[int]) -> None:
        """Copies files, in pieces, to the end of the temporary file."""
        folder, first = tempfile.gettempdir(), self._paths[numbers[0]]
        total = sum(self._sizes[number] for number in numbers)
        free = shutil.disk_usage(folder).free
        if total > free:
            raise DataError(
                f"{first} and the files read with it: copies need {total:,} bytes in "
                f"{folder}, where {free:,} are free; set the environment variable "
                "TMPDIR to a folder with more room"
            )
        logging.info(
            "copying %d record files (%.1f MB) to %s, %s first",
            len(numbers),
            total / 1e6,
            folder,
            first,
        )
        if self._copies is None:
            self._copies = tempfile.TemporaryFile(prefix="albert_tf-")  # noqa: SIM115
        starts, pieces = {}, []
        for number in numbers:
            starts[number] = self._end
            self._end += self._sizes[number]
            for at in range(0, self._sizes[number], _PIECE):
                pieces.append((number, at, starts[number]))
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._copy_piece, *zip(*pieces, strict=True)))
        self._starts |= starts

    def _copy_piece(self, number: int, at: int, start: int) -> None:
        """Copies one piece of a file, starting at byte `at`."""
        path = self._paths[number]
        end = min(self._sizes[number], at + _PIECE)
        try:
            with files.open_binary(path) as source:
                source.seek(at)
                while at < end:
                    block = source.read(min(_BLOCK, end - at))
                    if not block:
                        raise OSError("became shorter while it was read")
                    at += _write_at(self._copies, block, start + at)
        except OSError as error:
            raise DataError(
                f"{path}: cannot be copied to {tempfile.gettempdir()}: "
                f"{files.reason_of(error)}"
            ) from error


def _map(path: str) -> mmap.mmap:
    """Returns the memory of a local file, which several threads may read."""
    # It is never closed, because another thread may be reading. The last user frees it.
    with files.open_binary(path) as file:
        # Some mounted buckets refuse a shared mapping.
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)


def _write_at(file: IO[bytes], data: bytes, at: int) -> int:
    """Writes all of `data`; returns its length."""
    view = memoryview(data)
    while view:
        count = os.pwrite(file.fileno(), view, at)
        view, at = view[count:], at + count
    return len(data)
