"""Reads a text file in pieces, so that its size does not matter."""

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables.columns import BLANK, BadRows

_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Replaces a line that is too long; no UTF-8 text starts like this.
_TOO_LONG = b"\xff..."
# Longest line of a file of rows, in bytes.
MAX_ROW_BYTES = 64 << 20
# Separates the fields of a marked line that is not text: an empty one, reason, message
# and line. No valid line contains this character.
_MARK = "\0"


class TextStream:
    """A UTF-8 file, possibly gzipped, read from front to back.

    Args:
        bad: Handles lines that are not text, and counts lines that were cut. Default:
            stop.
        longest: Longest line in bytes; reading it needs as much memory.
        rows: Whether lines are rows, or parts of rows. If so, a longer line is
            unusable; otherwise it is cut, at white space if there is any. A line that
            `bad` does not stop at stays in place, marked for `without_mark`, so that
            the whole row is unusable.

    Attributes:
        size: Number of bytes of the file read so far, before decompression.
        sha256: digest of these bytes, a `hashlib` object.
    """

    def __init__(
        self,
        path: str,
        bad: BadRows | None = None,
        longest: int | None = None,
        rows: bool = False,
        hashes: bool = False,
    ):
        self.path = path
        self.size = self._total = 0
        self.sha256 = hashlib.sha256()
        self._bad = bad
        self._longest = longest
        self._rows = rows
        self._hashes = hashes

    def fraction(self) -> float:
        """Returns the fraction of the file that has been read, from 0 to 1."""
        return min(1.0, self.size / self._total) if self._total else 0.0

    def pieces(self) -> Iterator[str]:
        r"""Yields the text in pieces of about a megabyte that end at a line end.

        A byte order mark is dropped. A file without a `\n` is one piece. Raises
        `DataError` if the file cannot be read, or is not UTF-8 text.
        """
        # Blocks without a line end are joined once: a file may be a single line.
        rest: list[bytes] = []
        size = lines = 0
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
                size += len(block)
                if self._longest is None or size < self._longest:
                    continue
                if self._rows:
                    rest = [_TOO_LONG]
                    continue
                self._bad.counts["lines_cut"] += 1
                block, rest = b"".join(rest), []
                end = _cut_point(block)
            end = end or len(block)  # zero bytes are an error at once
            data, rest = b"".join([*rest, block[:end]]), [block[end:]]
            size = len(block) - end
            yield self._decoded(data, lines)
            lines += data.count(b"\n")
        if data := b"".join(rest):
            yield self._decoded(data, lines)

    def lines(self) -> Iterator[str]:
        """Yields the lines; see `split_lines`."""
        return split_lines(self.pieces())

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yields the bytes, decompressed, in blocks of `size` or a megabyte."""
        with files.reading(self.path) as raw:
            stats = files.status(self.path)
            self._total = stats.size if stats and stats.is_regular else 0
            watched = _Watched(raw, self)
            is_packed = watched.head == _GZIP
            file = gzip.GzipFile(fileobj=watched) if is_packed else watched
            try:
                while block := file.read(size or _BLOCK):
                    yield block
            except (gzip.BadGzipFile, EOFError, zlib.error) as e:
                raise DataError(
                    f"{self.path}: damaged or truncated gzip file: {e}"
                ) from None

    def watch(self, data: bytes) -> None:
        """Counts bytes that were read from the file."""
        self.size += len(data)
        if self._hashes:
            self.sha256.update(data)

    def _decoded(self, data: bytes, lines: int) -> str:
        """Returns the decoded text of lines that follow `lines` earlier ones."""
        if b"\0" not in data:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        texts = []
        for number, line in enumerate(data.split(b"\n"), lines + 1):
            try:
                text = line.decode()
                if "\0" not in text:
                    texts.append(text)
                    continue
                reason = "lines_with_nul_bytes"
                problem = "a NUL byte, this is not a text file"
            except UnicodeDecodeError:
                reason, problem = "lines_not_utf8", "not UTF-8 text"
                if line.startswith(_TOO_LONG):
                    reason = "lines_too_long"
                    problem = f"a line of more than {self._longest} bytes"
            problem = f"{self.path}: line {number}: {problem}"
            if self._bad is None:
                raise DataError(problem)
            if self._rows and self._bad.action in ("skip", BLANK):
                text = line.decode(errors="replace")
                texts.append(_MARK.join(["", reason, problem, text]))
            else:
                self._bad.report(reason, problem)
        return "\n".join(texts)


class _Watched:
    """A file that a stream reads once, from its start.

    The first two bytes are read in the constructor, because neither a pipe nor a remote
    object should be read twice.
    """

    def __init__(self, file: IO[bytes], stream: TextStream):
        self._file = file
        self._watch = stream.watch
        self.head = self._unused = file.read(2)

    def read(self, size: int = -1) -> bytes:
        head, self._unused = self._unused, b""
        data = self._file.read(size - len(head) if size >= 0 else size)
        data = head + data if head else data
        self._watch(data)
        return data


def _cut_point(line: bytes) -> int:
    """Returns the offset at which to cut a line that is too long."""
    end = max(line.rfind(b" "), line.rfind(b"\t")) + 1
    if not end:
        end = len(line)
        while end > len(line) - 4 and line[end - 1] & 0xC0 == 0x80:
            end -= 1  # not inside a character
        end = end - 1 if line[end - 1] >= 0xC0 else len(line)
    return end


def without_mark(line: str) -> tuple[str, tuple[str, str] | None]:
    """Returns a line of rows, and the reason and message if it was not text."""
    if not line.startswith(_MARK):
        return line, None
    _, reason, problem, line = line.split(_MARK, 3)
    return line, (reason, problem)


def used_row(row: Any, lines: Iterable[str], is_blank: bool, bad: BadRows) -> Any:
    """Returns a row, None if it is blank, or a stand-in if its lines are not text."""
    for _, problem in map(without_mark, lines):
        if problem:
            return bad.stand_in(*problem)
    if is_blank:
        bad.counts["blank lines"] += 1
    return None if is_blank else row


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file; see `TextStream`."""
    return "".join(TextStream(path).pieces())


def split_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yields the lines of `TextStream.pieces` without their line ends.

    A carriage return inside a line is an ordinary character, unless the file has no
    other line ends.
    """
    # No Python code runs per line: a piece has about ten thousand lines.
    return itertools.chain.from_iterable(_split(pieces))


def _split(pieces: Iterable[str]) -> Iterator[list[str]]:
    end = "\r"
    for piece in pieces:
        end = "\n" if "\n" in piece else end
        piece = piece.replace("\r\n", "\n") if "\r" in piece else piece
        lines = piece.split(end)
        if last := lines.pop():
            lines.append(last.removesuffix("\r"))
        yield lines
