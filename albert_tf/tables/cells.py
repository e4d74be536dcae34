"""Reads a file of text as cells or lines, whatever its columns mean."""

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.tables.text_stream import TextStream, check_bytes, not_utf8

# Longest cell the csv module accepts. Its default, 131,072, is too short for some
# documents.
_LONGEST_CELL = 1 << 24
_ANY_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ENDINGS = {
    "json": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "tabs": (".tsv", ".tab"),
}


def file_format(path: str | os.PathLike) -> str:
    """Returns "json", "parquet", "tabs" or "commas", by the ending of the name."""
    name = os.fspath(path).lower().removesuffix(".gz")
    for kind, endings in _ENDINGS.items():
        if name.endswith(endings):
            return kind
    return "commas"


def choose_delimiter(path: str, given: str | None) -> str:
    """Returns the delimiter given, or the usual one for the name of the file."""
    if given is None:
        return "\t" if file_format(path) == "tabs" else ","
    if len(given) != 1 or given in '"\r\n':
        raise UsageError(f"delimiter must be one character, received {given!r}")
    return given


def read_data(path: str) -> bytes:
    """Returns the content of a file, unpacked if it is gzipped."""
    data = files.read_bytes(path)
    if data[:2] == b"\x1f\x8b" or path.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as e:
            raise DataError(f"{path}: damaged or truncated gzip file: {e}") from None
    return data


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file without its byte order mark."""
    data = read_data(path)
    check_bytes(path, data, 0)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise not_utf8(path, e, 0) from None


def read_lines(text: str) -> Iterator[str]:
    """Yields lines without their ends.

    Inside a line a carriage return is a character like any other, unless the file has
    no other line ends.
    """
    end = "\n" if "\n" in text else "\r"
    for line in text.split(end):
        yield line.removesuffix("\r")


def read_cells(
    stream: TextStream, delimiter: str | None, quoting: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of every line that is not blank.

    Args:
        stream: `TextStream`. The file.
        delimiter: str or None. See `choose_delimiter`.
        quoting: bool. Whether `"` encloses cells.

    Raises:
        UsageError: If the delimiter is not one character.
        DataError: If the file cannot be read, is not UTF-8 or not CSV.
    """
    delimiter = choose_delimiter(stream.path, delimiter)
    if not quoting:
        for number, line in stream.lines():
            if line:
                yield number, line.split(delimiter)
        return
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(_csv_lines(stream), delimiter=delimiter, strict=True)
        start = 1
        try:
            for cells in reader:
                if cells:
                    # Between two rows others may read files of their own.
                    csv.field_size_limit(before)
                    yield reader.line_num, cells
                    csv.field_size_limit(_LONGEST_CELL)
                start = reader.line_num + 1
        except csv.Error as e:
            raise DataError(
                f"{stream.path}: line {start}: not CSV: {e} (if quotes are ordinary "
                "characters in this file, use --noquoting)"
            ) from None
    finally:
        csv.field_size_limit(before)


def _csv_lines(stream: TextStream) -> Iterator[str]:
    """Yields lines with their ends; for CSV, every carriage return ends one."""
    for piece in stream.pieces():
        yield from _ANY_LINE.findall(piece)
