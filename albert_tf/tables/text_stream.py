"""Reads a file of text in pieces, so that its size does not matter."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
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
        on_bytes: callable or None. Called with the bytes as they are on disk, for a
            checksum, and once with none at the end of the file.

    Attributes:
        path: str.
    """

    def __init__(self, path: str, on_bytes: Callable[[bytes], None] | None = None):
        self.path = path
        self._on_bytes = on_bytes
        self._size = self._place = 0

    def fraction(self) -> float:
        """Returns how much of the file has been read, from 0 to 1."""
        return min(1.0, self._place / self._size) if self._size else 0.0

    def pieces(self) -> Iterator[str]:
        r"""Yields the text in pieces of about a megabyte that end with a line.

        A byte order mark is dropped. A file without a `\n` is one piece.

        Raises:
            DataError: If the file cannot be read, or is not UTF-8 text.
        """
        # Blocks without a line end are joined once: a file may be a single line.
        rest: list[bytes] = []
        lines = 0
        for block in self.text_blocks():
            end = block.rfind(b"\n") + 1
            if not end and b"\0" not in block:
                rest.append(block)
                continue
            end = end or len(block)  # zero bytes are an error at once
            data, rest = b"".join([*rest, block[:end]]), [block[end:]]
            yield self._decoded(data, lines)
            lines += data.count(b"\n")
        if data := b"".join(rest):
            yield self._decoded(data, lines)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yields the lines; see `numbered_lines`."""
        return numbered_lines(self.pieces())

    def text_blocks(self) -> Iterator[bytes]:
        """Yields the bytes without a byte order mark; see `blocks`.

        Raises:
            DataError: If the file cannot be read, or is UTF-16.
        """
        for number, block in enumerate(self.blocks()):
            if not number and block[:2] in _UTF16:
                raise DataError(f"{self.path}: UTF-16 or UTF-32 text, must be UTF-8")
            yield block if number else block.removeprefix(_BYTE_ORDER_MARK)

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yields the bytes, unpacked if they start as a gzip file.

        Args:
            size: int or None. Bytes of a block.

        Raises:
            DataError: If the file cannot be read.
        """
        with files.reading(self.path) as raw:
            if streams.is_regular(self.path):
                self._size = streams.size(self.path)
            if hasattr(raw, "peek"):  # a pipe cannot be read twice
                start = raw.peek(2)[:2]
            else:
                start = raw.read(2)
                raw.seek(0)
            source = _Watched(raw, self._on_bytes) if self._on_bytes else raw
            file = gzip.GzipFile(fileobj=source) if start == _GZIP else source
            try:
                while block := file.read(size or _BLOCK):
                    self._place = raw.tell() if self._size else 0
                    yield block
                self._place = self._size
                if self._on_bytes:
                    self._on_bytes(b"")
            except (gzip.BadGzipFile, EOFError, zlib.error) as e:
                raise DataError(
                    f"{self.path}: damaged or truncated gzip file: {e}"
                ) from None

    def _decoded(self, data: bytes, lines: int) -> str:
        """Returns the text of lines that follow a number of other lines."""
        end = data.find(b"\0")
        problem = "a NUL byte, this is not a text file"
        if end < 0:
            try:
                return data.decode()
            except UnicodeDecodeError as e:
                end, problem = e.start, "not UTF-8 text"
        line = lines + data.count(b"\n", 0, end) + 1
        raise DataError(f"{self.path}: line {line}: {problem}")


class _Watched:
    """A binary file whose bytes are passed to a callback as they are read."""

    def __init__(self, file: IO[bytes], on_bytes: Callable[[bytes], None]):
        self._file = file
        self._on_bytes = on_bytes

    def read(self, count: int) -> bytes:
        data = self._file.read(count)
        if data:
            self._on_bytes(data)
        return data


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file; see `TextStream`."""
    return "".join(TextStream(path).pieces())


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
