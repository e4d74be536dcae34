"""Keeps a bounded number of record files open, shared by all threads that read them."""

import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from albert_tf.data.records.local_copy import LocalCopy
from albert_tf.errors import DataError
from albert_tf.storage import files

# A process may open about a thousand files; the rest are for others in it.
MAX_OPEN = 256


class OpenFiles:
    """Random access to some files, the most recently used of which stay open.

    Args:
        paths: Sequence. Paths of the files, local or remote.
    """

    def __init__(self, paths: Sequence[str]):
        self._paths = paths
        # Local: file number -> its mapped memory, which threads read at once.
        self._mapped: OrderedDict[int, mmap.mmap] = OrderedDict()
        # Remote: open files that no thread uses now, the oldest first. Seeking and
        # reading are two steps, so that threads cannot share one.
        self._idle: list[tuple[int, object]] = []
        self._copies = LocalCopy(paths)
        self._any_remote = any(map(files.is_remote, paths))
        self._lock = threading.Lock()

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

    def read(self, number: int, *ranges: tuple[int, int]) -> list[bytes]:
        """Reads byte ranges of a file; those beyond its end are short.

        Args:
            number: int. Index of the file in `paths`.
            *ranges: (offset, size) of each range.

        Raises:
            DataError: If the file cannot be read.
        """
        path = self._paths[number]
        try:
            if not files.is_remote(path):
                mapped = self._map(number)
                return [mapped[offset : offset + size] for offset, size in ranges]
            copied = [self._copies.read(number, *one) for one in ranges]
            if None not in copied:
                return copied
            file = self._take(number)
            contents = []
            for offset, size in ranges:
                file.seek(offset)
                contents.append(file.read(size))
            self._give_back(number, file)
            return contents
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {files.reason_of(error)}"
            ) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise DataError(f"{path}: cannot be read: {error}") from error

    def _map(self, number: int) -> mmap.mmap:
        with self._lock:
            mapped = self._mapped.get(number)
            if mapped is None:
                with files.open_binary(self._paths[number]) as file:
                    mapped = mmap.mmap(
                        # Some mounted buckets refuse a shared mapping.
                        file.fileno(),
                        0,
                        mmap.MAP_PRIVATE,
                        mmap.PROT_READ,
                    )
                self._mapped[number] = mapped
                # Not closed: another thread may be reading. The last user frees it.
                if len(self._mapped) > MAX_OPEN:
                    self._mapped.popitem(last=False)
            else:
                self._mapped.move_to_end(number)
            return mapped

    def _take(self, number: int):
        with self._lock:
            for k, (other, file) in enumerate(self._idle):
                if other == number:
                    del self._idle[k]
                    return file
        return files.open_binary(self._paths[number])

    def _give_back(self, number: int, file) -> None:
        with self._lock:
            self._idle.append((number, file))
            old = self._idle.pop(0)[1] if len(self._idle) > MAX_OPEN else None
        if old is not None:
            old.close()
