"""Reads one input file as a stream of lines."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows

# A longer line is cut at white space, so that one line of 500 MB needs no memory.
MAX_LINE_BYTES = 1 << 20
# A JSON object cannot be cut; a longer line is bad input.
MAX_JSON_BYTES = 64 << 20
_CHUNK = 1 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_READ_ERRORS = (OSError, EOFError, zlib.error)


def open_source(path: str, on_bytes: Callable[[bytes], None] | None = None) -> IO:
    """Opens a file for reading; gzip is recognized by its first bytes.

    Args:
        path: str. Local or remote path.
        on_bytes: callable. Called with the bytes as they are on disk, for a checksum,
            and once with none at the end of the file.
    """
    raw = _Watched(files.open_binary(path), on_bytes)
    if raw.peek() == b"\x1f\x8b":
        file = gzip.GzipFile(fileobj=raw, mode="rb")
        file.myfileobj = raw  # closed together
        return file
    return raw


class _Watched:
    """A binary file whose bytes are passed to a callback as they are read."""

    def __init__(self, file: IO[bytes], on_bytes: Callable[[bytes], None] | None):
        self._file = file
        self._on_bytes = on_bytes
        self._head = file.read(2)
        self._ended = False
        if on_bytes and self._head:
            on_bytes(self._head)

    def peek(self) -> bytes:
        return self._head

    def read(self, count: int = -1) -> bytes:
        head, self._head = self._head, b""
        new = self._file.read(count - len(head) if count >= 0 else -1)
        reads_file = count < 0 or count > len(head)
        if self._on_bytes and (new or (reads_file and not self._ended)):
            self._ended = not new
            self._on_bytes(new)
        return head + new

    def close(self) -> None:
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def read_lines(
    path: str,
    bad: BadRows,
    max_bytes: int = MAX_LINE_BYTES,
    cut: bool = True,
    on_bytes: Callable[[bytes], None] | None = None,
) -> Iterator[str]:
    """Yields the lines of a UTF-8 file without their ends.

    A byte order mark is dropped, CRLF counts as one line end. A line of more than
    `max_bytes` bytes is cut at white space (or between characters if there is none)
    and counted as "lines_cut"; with `cut` false it is bad input.

    Raises:
        DataError: If the file cannot be read, or (unless bad input is skipped) a line
            is not UTF-8 or contains NUL bytes.
    """
    offset, skipping = 0, False
    try:
        with open_source(path, on_bytes) as file:
            rest = b""
            while data := file.read(_CHUNK):
                if offset == 0 and not rest:
                    data = _without_bom(data, path)
                if skipping:  # the rest of a line that is too long
                    end = data.find(b"\n") + 1
                    skipping = not end
                    offset += end or len(data)
                    data = data[end or len(data) :]
                rest += data
                end = rest.rfind(b"\n") + 1
                if not end and len(rest) >= max_bytes and cut:
                    bad.counts["lines_cut"] += 1
                    end = _cut_point(rest)
                elif not end and len(rest) >= max_bytes:
                    bad.report(
                        "lines_too_long",
                        f"{path}: byte {offset}: a line of more than {max_bytes} bytes",
                    )
                    rest, offset, skipping = b"", offset + len(rest), True
                if end:
                    yield from _decode(rest[:end], path, offset, bad)
                    rest, offset = rest[end:], offset + end
            if rest:
                yield from _decode(rest, path, offset, bad)
    except _READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read: {reason}") from error


def _without_bom(data: bytes, path: str) -> bytes:
    if data[:4] in _UTF32:
        raise DataError(f"{path}: byte 0: UTF-32 text, must be UTF-8")
    if data[:2] in _UTF16:
        raise DataError(f"{path}: byte 0: UTF-16 text, must be UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def _cut_point(rest: bytes) -> int:
    """Returns where to cut a line that is too long."""
    end = max(rest.rfind(b" "), rest.rfind(b"\t")) + 1
    if not end:
        end = len(rest)
        while end > len(rest) - 4 and rest[end - 1] & 0xC0 == 0x80:
            end -= 1  # not inside a character
        end = end - 1 if rest[end - 1] >= 0xC0 else len(rest)
    return end


def _decode(data: bytes, path: str, offset: int, bad: BadRows) -> list[str]:
    """Decodes complete lines; one by one only if that fails."""
    data = data.removesuffix(b"\n")
    if b"\0" not in data:
        try:
            text = data.decode()
            return text.replace("\r\n", "\n").removesuffix("\r").split("\n")
        except UnicodeDecodeError:
            pass
    lines, at = [], offset
    for line in data.split(b"\n"):
        if b"\0" in line:
            place = at + line.index(b"\0")
            bad.report(
                "lines_with_nul_bytes",
                f"{path}: byte {place}: a NUL byte, this is not a text file",
            )
        else:
            try:
                lines.append(line.decode().removesuffix("\r"))
            except UnicodeDecodeError as error:
                bad.report(
                    "lines_not_utf8",
                    f"{path}: byte {at + error.start}: not UTF-8 "
                    f"(0x{line[error.start]:02x})",
                )
        at += len(line) + 1
    return lines


class Source(NamedTuple):
    """One file or data set of a corpus."""

    name: str  # path, or `tfds:...`, `docstrings:...`
    format: str  # one of FORMATS except auto, or "tfds", "docstrings"
    size: int  # bytes, at most; 0 where unknown
    modified: int = 0  # nanoseconds since 1970; 0 where unknown
