"""Reads a file of text in pieces, so that its size does not matter."""

import gzip
import zlib
from collections.abc import Iterable, Iterator

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
        for number, block in enumerate(self.blocks()):
            if not number:
                if block[:2] in _UTF16:
                    raise DataError(
                        f"{self.path}: UTF-16 or UTF-32 text, must be UTF-8"
                    )
                block = block.removeprefix(_BYTE_ORDER_MARK)
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

    def blocks(self) -> Iterator[bytes]:
        """Yields the bytes, unpacked if they are gzipped.

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
            is_packed = start == _GZIP or self.path.lower().endswith(".gz")
            file = gzip.GzipFile(fileobj=raw) if is_packed else raw
            try:
                while block := file.read(_BLOCK):
                    self._place = raw.tell() if self._size else 0
                    yield block
                self._place = self._size
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
