"""Reads the columns of a file: CSV, TSV, JSON lines or Parquet, also gzipped.

What the columns mean is decided by the families of tasks.
"""

import dataclasses
import difflib
import io
import itertools
import math
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.data.wording import list_counts
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.tables import cells
from albert_tf.tables.data_folder import COLUMNS, read_classes
from albert_tf.tables.json_rows import read_objects
from albert_tf.tables.text_stream import TextStream

ON_BAD_INPUT = ("stop", "skip")
# What Hugging Face's sets call a column, where it does not have its usual name.
_OTHER_NAMES = {"tags": "ner_tags"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns of a file.

    Attributes:
        path: str. The file, for error messages.
        names: tuple of str. All columns of the file; numbers from "0" if the file does
            not name them.
        values: dict. By column as it was asked for, the values of all rows. A value is
            a str, or from JSON and Parquet also a (nested) list of them. Numbers are
            spelled as in JSON; None is a null or a field that the row does not have.
        lines: list of int. Where each row ends in the file, counted from 1; of a folder
            the names of the files.
        unit: str. What `lines` counts: "line", "row", or "file".
        skipped: dict. Number of rows left out or filled, by reason.
        index: dict. By column as it was asked for, its number from 0.
    """

    path: str
    names: tuple[str, ...]
    values: Mapping[str, list]
    lines: list[int]
    unit: str = "line"
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    index: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """Returns file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


def read_columns(
    path: str | os.PathLike,
    columns: Sequence[str] | None = None,
    *,
    optional: Sequence[str] = (),
    exact: Collection[str] = (),
    delimiter: str | None = None,
    header: bool = True,
    quoting: bool = True,
    short_rows: str = "stop",
    on_bad_input: str = "stop",
) -> Columns:
    """Reads the columns of interest; the other columns may hold anything.

    The ending of the name decides the format: `.jsonl`, `.ndjson` and `.json` (one
    object per line, or one list of objects), `.parquet`, anything else is a table of
    cells. `.gz` may follow. A folder has the columns of `data_folder.COLUMNS`.

    Args:
        path: str. UTF-8 or Parquet file, local or remote, or a folder with a folder of
            texts per class.
        columns: sequence of str. Names of columns, or their numbers; negative numbers
            count from the end. None for all. Without a header only numbers are
            possible.
        optional: sequence of str. More columns, which the file need not have.
        exact: collection of str. Columns whose numbers and truth values stay what they
            are, where the format has them; all others become text.
        delimiter: str. Of cells; one character. Default: tab for `.tsv`, else comma.
        header: bool. Of cells: whether the first line names the columns.
        quoting: bool. Of cells: whether `"` encloses them, as in CSV. False for GLUE's
            files, where it is a character like any other.
        short_rows: str. What to do with a row of too few cells: "stop" and "skip" as
            `on_bad_input`, "fill" takes the missing ones as empty. All but "stop" are
            counted.
        on_bad_input: str. "stop" raises an error at a row that cannot be read, "skip"
            leaves it out and counts it.

    Raises:
        UsageError: If the delimiter is not one character, or pyarrow is missing.
        DataError: If the file cannot be read or is malformed; the message names the
            line.
    """
    path = os.fspath(path)
    bad = BadRows(on_bad_input)
    kind = cells.file_format(path)
    if kind in ("parquet", "json"):
        read = _read_parquet if kind == "parquet" else _read_json
        found = read(path, columns, optional, exact, bad)
        if not found:
            raise DataError(f"{path}: expected rows that can be used, received none")
        return found
    if files.is_folder(path):
        unit, header, expected = "file", True, "a folder of texts for each class"
        names, rows = COLUMNS, read_classes(path, bad.report)
    else:
        unit, expected = "line", "rows below the header"
        rows = cells.read_cells(TextStream(path), delimiter, quoting)
        names, rows = with_names(path, rows, header)
    index = find_all(path, columns, optional, names, header)
    values: dict[str, list] = {key: [] for key in index}
    lines = []
    for line, row in rows:
        if len(row) != len(names):
            row = adjusted(path, line, row, len(names), short_rows, bad)
            if row is None:
                continue
        lines.append(line)
        for key, i in index.items():
            values[key].append(row[i])
    if not lines:
        counts = f" ({list_counts(bad.counts)})" if bad.counts else ""
        raise DataError(f"{path}: expected {expected}, received none{counts}")
    return Columns(path, tuple(names), values, lines, unit, dict(bad.counts), index)


def with_names(
    path: str, rows: Iterator[tuple[int, list[str]]], header: bool
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Returns the names of the columns, and the rows after them.

    Args:
        path: str. The file.
        rows: iterator. Result of `cells.read_cells`.
        header: bool. Whether the first row has the names; otherwise they are numbers.

    Raises:
        DataError: If there is no row.
    """
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path}: expected a table with rows, received an empty file")
    if header:
        return first[1], rows
    return [str(i) for i in range(len(first[1]))], itertools.chain([first], rows)


class BadRows:
    """Raises an error for a row that cannot be used, or counts it.

    Args:
        action: str. "stop" or "skip".
        counts: Counter or None. Where they are counted, by reason.
    """

    def __init__(self, action: str, counts: Counter[str] | None = None):
        if action not in ON_BAD_INPUT:
            raise UsageError(
                f"on_bad_input must be one of {', '.join(ON_BAD_INPUT)}, received "
                f"{action!r}"
            )
        self.action = action
        self.counts: Counter[str] = Counter() if counts is None else counts

    def report(self, reason: str, message: str) -> None:
        """Raises `DataError(message)`, or counts `reason`."""
        if self.action == "stop":
            raise DataError(f"{message} (--on_bad_input=skip leaves it out)")
        self.counts[reason] += 1


def warn_of_skipped(path: str, counts: Mapping[str, int]) -> None:
    """Says how many rows of a file were left out or filled, if any were, and why."""
    if counts:
        logging.warning("%s: %s", path, list_counts(counts))


def adjusted(path, line, row, width, short_rows, bad) -> list[str] | None:
    """Returns a row of the right width, or None if it is to be left out."""
    if short_rows == "fill":
        bad.counts["rows of another width, filled or cut"] += 1
        return (row + [""] * width)[:width]
    if short_rows == "skip" and len(row) < width:
        bad.counts["short rows"] += 1
        return None
    bad.report(
        "rows of another width",
        f"{path}: line {line}: expected {width} columns, received {len(row)}",
    )
    return None


def find_all(
    path: str,
    columns: Sequence[str] | None,
    optional: Sequence[str],
    names: Sequence[str],
    header: bool = True,
) -> dict[str, int]:
    """Returns the numbers of the columns that are wanted; see `read_columns`."""
    wanted = names if columns is None else columns
    index = {key: _find_column(path, key, names, header) for key in wanted}
    for key in optional:
        if usual_name(key, names) in names:
            index[key] = _find_column(path, key, names, header)
    return index


def usual_name(wanted: str, names: Collection[str]) -> str:
    """Returns the name that a column has in a file; `wanted` if it is not there."""
    other = _OTHER_NAMES.get(wanted)
    return other if wanted not in names and other in names else wanted


def _find_column(path: str, wanted: str, names: Sequence[str], header: bool) -> int:
    """Returns the number of a column that is given by name or number."""
    if header and (other := usual_name(wanted, names)) != wanted:
        logging.info("%s: its column %s is read as %s", path, other, wanted)
        wanted = other
    if header and wanted in names:
        if names.count(wanted) > 1:
            raise DataError(f"{path}: line 1: several columns are named {wanted!r}")
        return names.index(wanted)
    digits = wanted.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 9:
        number = int(wanted)
        if -len(names) <= number < len(names):
            return number % len(names)
    if not header:
        rule = f"a number from 0 to {len(names) - 1} (without a header)"
    else:
        rule = f"one of {', '.join(names)}"
        if close := difflib.get_close_matches(wanted, names, 1):
            rule += f"; did you mean {close[0]!r}?"
        elif cells.file_format(path) in ("json", "parquet"):
            pass
        elif len(names) == 1:
            rule += " (--delimiter sets another separator)"
        else:
            rule += " (--noheader reads a table without names, by column numbers)"
    raise DataError(f"{path}: no column {wanted!r}; expected {_cut(rule)}")


def _cut(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _read_json(path, columns, optional, exact, bad: BadRows) -> Columns:
    """Reads one object per line, or a list of objects."""
    unit, found = read_objects(TextStream(path), bad.report)
    numbered = list(found)
    lines, objects = [n for n, _ in numbered], [item for _, item in numbered]
    if not objects:
        raise DataError(f"{path}: expected rows of JSON objects, received none")
    names = list(dict.fromkeys(name for item in objects for name in item))
    index = find_all(path, columns, optional, names)
    rows = [[item.get(names[i]) for i in index.values()] for item in objects]
    return plain_columns(path, names, index, rows, lines, unit, bad, exact)


def _read_parquet(path, columns, optional, exact, bad: BadRows) -> Columns:
    parquet, errors = import_parquet(path)
    data = cells.read_data(path)
    try:
        file = parquet.ParquetFile(io.BytesIO(data))
        names = file.schema_arrow.names
        index = find_all(path, columns, optional, names)
        table = file.read(columns=[names[i] for i in index.values()])
        found = [python_values(table.column(names[i])) for i in index.values()]
    except DataError:
        raise
    except errors as e:
        raise DataError(f"{path}: cannot be read as Parquet: {_one_line(e)}") from None
    if not table.num_rows:
        raise DataError(f"{path}: expected rows, received none")
    rows = list(zip(*found, strict=True)) or [[]] * table.num_rows
    lines = list(range(1, table.num_rows + 1))
    return plain_columns(path, names, index, rows, lines, "row", bad, exact)


def import_parquet(path: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Returns pyarrow's module for Parquet, and what it raises for a damaged file.

    Raises:
        UsageError: If pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"{path}: reading parquet needs pyarrow: pip install albert_tf[parquet]"
        ) from None
    return parquet, (OSError, ValueError, pa.ArrowException)


def python_values(column: Any) -> list:
    """Returns the values of Arrow's column; instead of text that is not UTF-8, bytes.

    `plain_columns` refuses these, and names the row.
    """
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as e:
        return e.object


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def plain_columns(
    path: str,
    names: Sequence[str],
    index: Mapping[str, int],
    rows: Sequence[Sequence[Any]],
    lines: Sequence[int],
    unit: str,
    bad: BadRows,
    exact: Collection[str] = (),
) -> Columns:
    """Makes columns of strings, lists and None; reports values that are none."""
    values: dict[str, list] = {key: [] for key in index}
    kept = []
    for number, row in zip(lines, rows, strict=True):
        try:
            named = zip(index, row, strict=True)
            plain = [_plain(value, name in exact) for name, value in named]
        except (ValueError, RecursionError) as e:
            reason = str(e) if isinstance(e, ValueError) else "nested too deeply"
            bad.report("rows of other values", f"{path}: {unit} {number}: {reason}")
            continue
        kept.append(number)
        for column, value in zip(values.values(), plain, strict=True):
            column.append(value)
    return Columns(path, tuple(names), values, kept, unit, dict(bad.counts), index)


def _plain(value: Any, exact: bool = False) -> Any:
    """Returns a str, a list or None; if `exact`, also a bool or a finite number."""
    if value is None or (exact and isinstance(value, int)):
        return value
    if exact and isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item, exact) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        raise ValueError(f"expected text, a number or a list, received {value!r:.80}")
    text = str(value)
    text.encode()  # refuses half of a surrogate pair
    return text
