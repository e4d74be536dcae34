"""Reads one file or data set of a corpus: lines, or the texts of a column."""

import difflib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables import tfds_source
from albert_tf.tables.columns import BadRows
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.text_stream import TextStream

# A longer line is cut at white space, so that one line of 500 MB needs no memory.
MAX_LINE_BYTES = 1 << 20
# A JSON object cannot be cut; a longer line is bad input.
MAX_JSON_BYTES = 64 << 20
_ROWS = 256


class Source(NamedTuple):
    """One file or data set of a corpus."""

    name: str  # path, or `tfds:...`, `docstrings:...`
    format: str  # one of FORMATS except auto, or "tfds", "docstrings"
    size: int  # bytes, at most; 0 where unknown
    modified: int = 0  # nanoseconds since 1970; 0 where unknown


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
    offset, skipping, rest = 0, False, b""
    for data in TextStream(path, on_bytes).text_blocks():
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


def read_table(
    source: Source, settings, bad: BadRows, on_bytes: Callable[[bytes], None]
) -> Iterator[str]:
    """Yields the strings of one column of a CSV, TSV or Parquet file.

    Args:
        source: `Source`. The file.
        settings: `CorpusSettings`.
        bad: `BadRows`. What to do with rows that cannot be used.
        on_bytes: callable. See `TextStream`.

    Raises:
        UsageError: If pyarrow is needed and not installed.
        DataError: If the file is damaged or has no such column.
    """
    path, column = source.name, settings.text_field
    with files.reading(path) as file:
        while data := file.read(1 << 20):
            on_bytes(data)
    on_bytes(b"")
    kind = "parquet" if source.format == "parquet" else None
    stream = ColumnReader(path, [column], **settings.layout, bad=bad, kind=kind)
    for rows in stream.portions(_ROWS):
        for number, value in enumerate(rows.values[column]):
            if isinstance(value, str):
                yield value
            else:
                bad.report(
                    "rows_without_text",
                    f"{rows.where(number)}: column {column!r} (--text_column) must "
                    f"contain strings, received {value!r}",
                )


def read_tfds(source: Source, settings, bad: BadRows) -> Iterator[str]:
    """Yields the texts of the training split of a TFDS data set, in stored order.

    Args:
        source: `Source`. Its name is, for example, `tfds:wikipedia/20230601.en`.
        settings: `CorpusSettings`.
        bad: `BadRows`. What to do with rows that cannot be used.

    Raises:
        DataError: If the set is not prepared, or has no such feature.
    """
    name, field = source.name, settings.text_field
    path = tfds_source.prepared_folder(name, settings.tfds_data_dir, False)
    with tfds_source.opened(name, path, "train") as (_, rows):
        for row in rows:
            if field not in row:
                close = difflib.get_close_matches(field, list(row), 1)
                raise DataError(
                    f"{name}: has no feature {field!r} (--text_column), its features "
                    f"are {', '.join(sorted(row))}"
                    f"{f'; did you mean {close[0]!r}?' if close else ''}"
                )
            try:
                yield row[field].decode()
            except UnicodeDecodeError as error:
                bad.report("rows_not_utf8", f"{name}: a text is not UTF-8: {error}")
