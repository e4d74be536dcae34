"""Reads a file of text in pieces, so that its size does not matter."""

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from albert_tf.errors import DataError
from albert_tf.storage import files, streams

_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextStream:
    """A UTF-8 file, perhaps gzipped, from front to back.

    Args:
        path: str. Local or remote file.

    Attributes:
        path: str.
    """

    def __init__(self, path: str):
        self.path = path
        self._raw: IO[bytes] | None = None
        self._size = 0
        self._place = 0

    def fraction(self) -> float:
        """Returns how much of the file has been read, from 0 to 1."""
        return min(1.0, self._place / self._size) if self._size else 0.0

    def pieces(self) -> Iterator[str]:
        r"""Yields the text in pieces of about a megabyte that end with a line.

        A file without a `\n` is one piece.

        Raises:
            DataError: If the file cannot be read, or is not UTF-8 text.
        """
        # Blocks without a line end are joined once: a file may be a single line.
        rest: list[bytes] = []
        lines = 0
        for number, block in enumerate(self._blocks()):
            check_bytes(self.path, block, lines, not number)
            if not number:
                block = block.removeprefix(_BYTE_ORDER_MARK)
            end = block.rfind(b"\n") + 1
            if not end:
                rest.append(block)
                continue
            data, rest = b"".join([*rest, block[:end]]), [block[end:]]
            yield self._decoded(data, lines)
            lines += data.count(b"\n")
        if data := b"".join(rest):
            yield self._decoded(data, lines)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yields the lines; see `numbered_lines`."""
        return numbered_lines(self.pieces())

    def _decoded(self, data: bytes, lines: int) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as e:
            raise not_utf8(self.path, e, lines) from None

    def _blocks(self) -> Iterator[bytes]:
        with self._open() as file:
            while block := self._read(file):
                yield block

    def _read(self, file: IO[bytes]) -> bytes:
        try:
            block = file.read(_BLOCK)
            if self._size:
                self._place = self._raw.tell()
            return block
        except (gzip.BadGzipFile, EOFError, zlib.error) as e:
            raise DataError(
                f"{self.path}: damaged or truncated gzip file: {e}"
            ) from None
        except OSError as e:
            raise _unreadable(self.path, e) from None

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            raw = files.open_binary(self.path)
        except IsADirectoryError:
            raise DataError(f"{self.path}: expected a file, found a folder") from None
        except OSError as e:
            raise _unreadable(self.path, e) from None
        with raw:
            self._raw = raw
            is_packed = self._read_start() == _GZIP
            if is_packed or self.path.lower().endswith(".gz"):
                with gzip.GzipFile(fileobj=raw) as file:
                    yield file
            else:
                yield raw

    def _read_start(self) -> bytes:
        try:
            if streams.is_regular(self.path):
                self._size = streams.size(self.path)
            if hasattr(self._raw, "peek"):  # a pipe cannot be read twice
                return self._raw.peek(2)[:2]
            start = self._raw.read(2)
            self._raw.seek(0)
        except OSError as e:
            raise _unreadable(self.path, e) from None
        return start


def numbered_lines(pieces: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields the lines of `TextStream.pieces` without their ends, numbered from 1.

    Inside a line a carriage return is a character like any other, unless the file has
    no other line ends.
    """
    number, end = 0, "\r"
    for piece in pieces:
        end = "\n" if "\n" in piece else end
        lines = piece.split(end)
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            yield number, line.removesuffix("\r")


def check_bytes(path: str, data: bytes, lines: int, is_start: bool = True) -> None:
    """Raises a DataError if bytes cannot be UTF-8 text.

    Args:
        path: str. The file.
        data: bytes. A part of it.
        lines: int. Number of lines that end before this part.
        is_start: bool. Whether it is the start of the file.
    """
    if is_start and data[:2] in _UTF16:
        raise DataError(f"{path}: UTF-16 or UTF-32 text, must be UTF-8")
    end = data.find(b"\0")
    if end >= 0:
        line = lines + data.count(b"\n", 0, end) + 1
        raise DataError(f"{path}: line {line}: a NUL byte, this is not a text file")


def not_utf8(path: str, error: UnicodeDecodeError, lines: int) -> DataError:
    """Returns the error for text that is not UTF-8; see `check_bytes`."""
    line = lines + error.object.count(b"\n", 0, error.start) + 1
    return DataError(f"{path}: line {line}: not UTF-8 text")


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read: {files.reason_of(error)}")
