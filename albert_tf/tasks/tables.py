"""Tables of texts and labels: CSV, TSV, with or without quotes, gzip too."""

import csv
import dataclasses
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

# The csv module refuses longer cells; its own limit of 131,072 cuts real documents.
_LONGEST_CELL = 1 << 24


@dataclasses.dataclass(frozen=True)
class TextTable:
    """Columns of a table.

    Attributes:
        path: str. Where it was read from, for error messages.
        texts: The first texts.
        text_pairs: The second texts, or None.
        labels: The labels as they are written, or None.
        lines: Line of the file where each row ends, counted from 1.
    """

    path: str
    texts: list[str]
    text_pairs: list[str] | None
    labels: list[str] | None
    lines: list[int]

    def __len__(self) -> int:
        return len(self.texts)


def read_table(
    path: str | os.PathLike,
    *,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str | None = "label",
    delimiter: str | None = None,
    header: bool = True,
    quoting: bool = True,
) -> TextTable:
    """Reads the columns of interest; all others may hold anything.

    Args:
        path: A CSV or TSV file in UTF-8; `.gz` is unpacked; `gs://` too.
        text_column, text_pair_column, label_column: Name in the first line, or number
            of the column from 0. Numbers only, where there is no header. The last two
            may be None.
        delimiter: One character. Default: tab for `.tsv`, comma otherwise.
        header: bool. Whether the first line names the columns.
        quoting: bool. Whether `"` quotes a cell as in CSV; false for GLUE's files,
            where it is a character like any other.

    Raises:
        UsageError: If the delimiter is not one character.
        DataError: If the file cannot be read or is not such a table; the message names
            the line.
    """
    path = os.fspath(path)
    name = path.lower().removesuffix(".gz")
    if delimiter is None:
        delimiter = "\t" if name.endswith((".tsv", ".tab")) else ","
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(f"delimiter must be one character, received {delimiter!r}")
    rows = _rows(path, _read_text(path), delimiter, quoting)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path}: expected a table with rows, found an empty file")
    names = first[1] if header else None
    wanted = [text_column, text_pair_column, label_column]
    index = [
        None if column in (None, "") else _column(path, str(column), first[1], names)
        for column in wanted
    ]
    columns, lines = [[], [], []], []
    if not header:
        rows = _chain(first, rows)
    for line, cells in rows:
        if len(cells) != len(first[1]):
            raise DataError(
                f"{path}: line {line}: expected {len(first[1])} columns, found "
                f"{len(cells)}"
            )
        lines.append(line)
        for column, i in zip(columns, index, strict=True):
            if i is not None:
                column.append(cells[i])
    if not lines:
        raise DataError(f"{path}: expected rows below the header, found none")
    values = [None if i is None else c for c, i in zip(columns, index, strict=True)]
    return TextTable(path, *values, lines)


def find_labels(table: TextTable) -> list[str]:
    """The distinct labels, sorted; as numbers if all of them are whole numbers.

    Raises:
        DataError: If a label is empty, or there are fewer than two.
    """
    for label, line in zip(table.labels, table.lines, strict=True):
        if not label:
            raise DataError(f"{table.path}: line {line}: the label is empty")
    labels = sorted(set(table.labels))
    if len(labels) < 2:
        raise DataError(
            f"{table.path}: expected at least 2 different labels, found only "
            f"{labels[0]!r}"
        )
    try:
        return sorted(labels, key=int)
    except ValueError:
        return labels


def label_ids(table: TextTable, labels: Sequence[str]) -> list[int]:
    """Each row's label as its index in `labels`.

    Raises:
        DataError: If a row has another label.
    """
    index = {label: i for i, label in enumerate(labels)}
    for label, line in zip(table.labels, table.lines, strict=True):
        if label not in index:
            known = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
            raise DataError(
                f"{table.path}: line {line}: expected a label of {known}, found "
                f"{label!r}"
            )
    return [index[label] for label in table.labels]


def _read_text(path: str) -> str:
    data = files.read_bytes(path)
    if path.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as e:
            raise DataError(f"{path}: not a whole gzip file: {e}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = e.object.count(b"\n", 0, e.start) + 1
        raise DataError(f"{path}: line {line}: not UTF-8 text") from None


def _rows(
    path: str, text: str, delimiter: str, quoting: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, cells) of the lines that are not blank."""
    if not quoting:
        for number, line in enumerate(io.StringIO(text, newline=None), 1):
            line = line.rstrip("\n")
            if line:
                yield number, line.split(delimiter)
        return
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, strict=True
        )
        start = 1
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
                start = reader.line_num + 1
        except csv.Error as e:
            raise DataError(
                f"{path}: line {start}: not CSV: {e} (a file that does not quote "
                "cells is read with --noquoting)"
            ) from None
    finally:
        csv.field_size_limit(before)


def _chain(first, rest):
    yield first
    yield from rest


def _column(path: str, wanted: str, first: list[str], names: list[str] | None) -> int:
    if names is not None and wanted in names:
        if names.count(wanted) > 1:
            raise DataError(f"{path}: line 1: more than one column {wanted!r}")
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(first):
        return int(wanted)
    if names is None:
        rule = f"a number from 0 to {len(first) - 1} (there is no header)"
    else:
        rule = f"one of {', '.join(names)}"
    raise DataError(f"{path}: no column {wanted!r}; expected {rule}")
