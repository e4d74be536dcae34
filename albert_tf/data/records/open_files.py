"""Random access to record files: a bounded number stay open, remote ones are copied.

A bucket answers a read of one record with half a megabyte or more, and only after a
round trip, while training reads records in random order, again in every epoch. A whole
file is therefore copied as soon as reading single records from it has cost a tenth of
its size; a few records are read directly.
"""

import functools
import mmap
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from absl import logging

from albert_tf.errors import DataError
from albert_tf.storage import files, streams

# A process may open about a thousand files; the rest are for others in it.
MAX_OPEN = 256
# What TensorFlow reads at least when a file is read at a new place.
READ_AHEAD = 512 << 10
# One thread copies this many bytes; a usual shard is as large.
_PIECE = 128 << 20
_BLOCK = 4 << 20
_THREADS = 8


class OpenFiles:
    """Random access to some files, the most recently used of which stay open.

    Args:
        paths: Sequence. Paths of the files, local or remote.
    """

    def __init__(self, paths: Sequence[str]):
        self._paths = paths
        self._map = functools.lru_cache(MAX_OPEN)(_map)
        self._copies = LocalCopy(paths)
        self._any_remote = any(map(files.is_remote, paths))

    def __getstate__(self) -> dict:
        return {"_paths": self._paths}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["_paths"])

    def expect(self, numbers: Iterable[int]) -> None:
        """Announces reads, so that remote files that are read much are copied first.

        Args:
            numbers: Index of a file in `paths`, once for each range that follows.

        Raises:
            DataError: If a file cannot be copied.
        """
        if self._any_remote:
            remote = [n for n in numbers if files.is_remote(self._paths[n])]
            self._copies.expect(remote)

    def read(
        self, number: int, offset: int, size: int, rest: Callable[[bytes], int]
    ) -> tuple[bytes, bytes]:
        """Reads two ranges of bytes of a file, one after the other.

        Args:
            number: int. Index of the file in `paths`.
            offset: int.
            size: int. Of the first range.
            rest: callable. Returns the size of the second one from the first one.

        Returns:
            Both ranges, which are short at the end of the file.

        Raises:
            DataError: If the file cannot be read.
        """
        path = self._paths[number]
        try:
            if not files.is_remote(path):
                mapped, end = self._map(path), offset + size
                head = mapped[offset:end]
                return head, mapped[end : end + rest(head)]
            head = self._copies.read(number, offset, size)
            if head is not None:
                return head, self._copies.read(number, offset + size, rest(head))
            with files.open_binary(path) as file:
                file.seek(offset)
                head = file.read(size)
                return head, file.read(rest(head))
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {files.reason_of(error)}"
            ) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise DataError(f"{path}: cannot be read: {error}") from error


def _map(path: str) -> mmap.mmap:
    """Returns the memory of a local file, which threads read at once.

    It is not closed: another thread may be reading. The last user frees it.
    """
    with files.open_binary(path) as file:
        # Some mounted buckets refuse a shared mapping.
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)


class LocalCopy:
    """A temporary file with copies of whole remote files.

    The file has no name, so its space is freed however the process ends.

    Args:
        paths: Sequence. Paths of the remote files.
    """

    def __init__(self, paths: Sequence[str]):
        self._paths = paths
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._spent: Counter[int] = Counter()
        self._file: IO[bytes] | None = None
        self._end = 0
        self._lock = threading.Lock()

    def expect(self, numbers: Iterable[int]) -> None:
        """Prepares for reading one range of each of these files.

        Args:
            numbers: Index of a file in `paths`, once for each range.

        Raises:
            DataError: If a file cannot be copied.
        """
        counts = Counter(n for n in numbers if n not in self._starts)
        if not counts:
            return
        with self._lock:
            new = []
            for number, count in counts.items():
                if number not in self._starts:
                    self._spent[number] += count * READ_AHEAD
                    if self._spent[number] > self._size(number) // 10:
                        new.append(number)
            if new:
                self._copy(new)

    def read(self, number: int, offset: int, size: int) -> bytes | None:
        """Returns a range of a file, short at its end; None if it is not copied."""
        start = self._starts.get(number)
        if start is None:
            return None
        size = min(size, self._sizes[number] - offset)
        return os.pread(self._file.fileno(), max(size, 0), start + offset)

    def _size(self, number: int) -> int:
        if number not in self._sizes:
            self._sizes[number] = streams.size(self._paths[number])
        return self._sizes[number]

    def _copy(self, numbers: Sequence[int]) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="albert_tf-")  # noqa: SIM115
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._size, numbers))
            total = sum(self._sizes[number] for number in numbers)
            self._check_space(total)
            logging.info(
                "copying %d record files (%.1f MB) to %s, %s first",
                len(numbers),
                total / 1e6,
                tempfile.gettempdir(),
                self._paths[numbers[0]],
            )
            starts, jobs = {}, []
            for number in numbers:
                starts[number] = self._end
                self._end += self._sizes[number]
                pieces = range(0, self._sizes[number], _PIECE)
                jobs += [(number, starts[number], at) for at in pieces]
            list(pool.map(lambda job: self._copy_piece(*job), jobs))
        self._starts |= starts

    def _check_space(self, needed: int) -> None:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise DataError(
                f"{self._paths[0]} and the files read with it: copies need "
                f"{needed:,} bytes in {folder}, where {free:,} are free; set the "
                "environment variable TMPDIR to a folder with more room"
            )

    def _copy_piece(self, number: int, start: int, at: int) -> None:
        """Copies one piece of a file, from byte `at` on."""
        path = self._paths[number]
        end = min(self._sizes[number], at + _PIECE)
        try:
            with files.open_binary(path) as source:
                source.seek(at)
                while at < end:
                    block = source.read(min(_BLOCK, end - at))
                    if not block:
                        raise OSError("became shorter while it was read")
                    _write_at(self._file, block, start + at)
                    at += len(block)
        except OSError as error:
            raise DataError(
                f"{path}: cannot be copied to {tempfile.gettempdir()}: "
                f"{files.reason_of(error)}"
            ) from error


def _write_at(file: IO[bytes], data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file.fileno(), view, at)
        view, at = view[count:], at + count
