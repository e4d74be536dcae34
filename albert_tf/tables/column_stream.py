"""Reads the columns of a file in portions of a fixed number of rows.

What `columns.read_columns` reads at once, for files of any size. The formats are the
same; a JSON list, and Parquet that is gzipped, are read whole all the same.
"""

import io
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables import cells
from albert_tf.tables.columns import (
    BadRows,
    Columns,
    adjusted,
    find_all,
    import_parquet,
    plain_columns,
    python_values,
    with_names,
)
from albert_tf.tables.json_rows import read_objects
from albert_tf.tables.text_stream import TextStream


class ColumnStream:
    """The columns of interest of a file, from its first row to its last.

    JSON Lines have the fields that occur in the
    first portion.

    Args:
        path: str. File; see `columns.read_columns`, also for the others.
        columns: sequence of str.
        delimiter: str or None.
        header: bool.
        quoting: bool.
        bad: `BadRows`. What to do with rows that cannot be read. Default: stop.
        kind: str or None. Result of `cells.file_format` for a name that does not say.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        columns: Sequence[str],
        *,
        delimiter: str | None = None,
        header: bool = True,
        quoting: bool = True,
        bad: BadRows | None = None,
        kind: str | None = None,
    ):
        self.path = os.fspath(path)
        self._columns = list(columns)
        self._layout = (delimiter, header, quoting)
        self._bad = bad or BadRows("stop")
        self._kind = kind or cells.file_format(self.path)
        self._text = TextStream(self.path)
        self._num_rows = self._done = 0

    def fraction(self) -> float:
        """Returns how much of the file has been read, from 0 to 1."""
        if self._num_rows:
            return min(1.0, self._done / self._num_rows)
        return self._text.fraction()

    def portions(self, rows: int) -> Iterator[Columns]:
        """Yields the rows in portions of equal size; only the last one is smaller.

        Args:
            rows: int. Rows of a portion.

        Raises:
            UsageError: If the delimiter is not one character, or pyarrow is missing.
            DataError: If the file cannot be read, is malformed or has no rows; the
                message names the line.
        """
        readers = {"parquet": self._parquet, "json": self._json}
        read = readers.get(self._kind, self._cells)
        return read(rows)

    def _cells(self, size: int) -> Iterator[Columns]:
        delimiter, header, quoting = self._layout
        path, bad = self.path, self._bad
        rows = cells.read_cells(self._text, delimiter, quoting)
        names, rows = with_names(path, rows, header)
        index = find_all(path, self._columns, (), names, header)
        for portion in _nonempty(
            _batches(rows, size), f"{path}: expected rows below the header"
        ):
            portion = [
                (line, row)
                for line, row in portion
                if len(row) == len(names)
                or adjusted(path, line, row, len(names), "stop", bad)
            ]
            lines = [line for line, _ in portion]
            values = {key: [row[i] for _, row in portion] for key, i in index.items()}
            yield Columns(path, tuple(names), values, lines, "line", {}, index)

    def _json(self, size: int) -> Iterator[Columns]:
        path, bad = self.path, self._bad
        unit, objects = read_objects(self._text, bad.report)
        names: list[str] = []
        index: dict[str, int] = {}
        for portion in _nonempty(
            _batches(objects, size), f"{path}: expected rows of JSON objects"
        ):
            if not names:
                names = list(dict.fromkeys(name for _, one in portion for name in one))
                index = find_all(path, self._columns, (), names)
            rows = [[one.get(names[i]) for i in index.values()] for _, one in portion]
            lines = [number for number, _ in portion]
            yield plain_columns(path, names, index, rows, lines, unit, bad)

    def _parquet(self, size: int) -> Iterator[Columns]:
        parquet, errors = import_parquet(self.path)
        path, bad = self.path, self._bad
        try:
            with open_parquet(path) as file:
                table = parquet.ParquetFile(file)
                self._num_rows = table.metadata.num_rows
                names = table.schema_arrow.names
                index = find_all(path, self._columns, (), names)
                rows = _parquet_rows(table, [names[i] for i in index.values()], size)
                first = 1
                for portion in _nonempty(
                    _batches(rows, size), f"{path}: expected rows"
                ):
                    lines = list(range(first, first + len(portion)))
                    first += len(portion)
                    self._done = first - 1
                    yield plain_columns(path, names, index, portion, lines, "row", bad)
        except DataError:
            raise
        except errors as e:
            reason = " ".join(str(e).split())[:200]
            raise DataError(f"{path}: cannot be read as Parquet: {reason}") from None


def _batches(rows: Iterable, size: int) -> Iterator[list]:
    rows = iter(rows)
    while portion := list(itertools.islice(rows, size)):
        yield portion


def _nonempty(portions: Iterator[list], expected: str) -> Iterator[list]:
    first = next(portions, None)
    if first is None:
        raise DataError(f"{expected}, received none")
    return itertools.chain([first], portions)


def open_parquet(path: str) -> IO[bytes]:
    """Opens a Parquet file, which may be gzipped, for reading.

    Raises:
        DataError: If it cannot be read.
    """
    if path.lower().endswith(".gz"):
        return io.BytesIO(cells.read_data(path))
    try:
        return files.open_binary(path)
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}") from None


def _parquet_rows(table, names: list[str], size: int) -> Iterator[tuple]:
    """Yields rows of Python values."""
    wanted = list(dict.fromkeys(names))
    for batch in table.iter_batches(size, columns=wanted):
        columns = {name: python_values(batch.column(name)) for name in wanted}
        yield from zip(*(columns[name] for name in names), strict=True)
