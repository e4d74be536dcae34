"""Reads the columns of a file: CSV, TSV, JSON, JSON Lines or Parquet, also gzipped.

The callers decide what the columns mean.
"""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import DataError, list_counts, require
from albert_tf.storage import files
from albert_tf.tables.cells import CellReader
from albert_tf.tables.columns import (
    BLANK,
    REFUSE,
    BadRows,
    Columns,
    file_format,
    find_column,
    usual_name,
)
from albert_tf.tables.text_stream import MAX_ROW_BYTES, TextStream, read_text
from albert_tf.tables.typed_rows import (
    json_objects,
    open_parquet,
    parquet_rows,
    plain_rows,
)

# Parquet rows read at once when the whole file is one portion.
_PARQUET_ROWS = 1 << 14
_CLASS_COLUMNS = ["text", "label", "file"]
# Rows transposed to columns at once: more would trigger slow garbage collections.
_ROWS_AT_ONCE = 256


class _Rows(NamedTuple):
    """An opened file: iterator over (number, row), and what the rows contain."""

    unit: str
    names: Sequence[str]
    index: dict[str, int]  # of each wanted column among the names
    places: Sequence[int]  # of the wanted columns in a row
    expected: str  # describes the rows, for the error if there are none
    rows: Iterator[tuple[Any, Any]]
    total: int = 0  # number of rows, if the file tells


class ColumnReader:
    """The columns of interest of a file; the other columns may hold anything.

    The extension decides the format: `.jsonl`, `.ndjson` and `.json` (one object per
    line, or one list of objects), `.parquet`, `.txt` (without a delimiter: one text per
    line, in the column `text`); anything else is a table of cells. `.gz` may follow. A
    folder with one subfolder of text files per class has the columns text, label and
    file.

    Args:
        path: UTF-8 or Parquet file, local or remote, or a folder of classes.
        columns: Names or numbers of columns; negative numbers count from the end. None
            for all. Without a header only numbers are possible.
        optional: Additional columns, which may be missing from the file.
        bad: Handles rows that cannot be read. Default: stop.
        **layout: Of a table of cells: see `CellReader`.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        columns: Sequence[str] | None = None,
        *,
        optional: Sequence[str] = (),
        bad: BadRows | None = None,
        **layout,
    ):
        self.path = os.fspath(path)
        self._columns = columns
        self._optional = optional
        self._bad = bad or BadRows(REFUSE)
        self._layout = layout
        self._text = TextStream(self.path, self._bad, MAX_ROW_BYTES, rows=True)
        self._share = 0.0  # fraction of the Parquet rows read so far

    def fraction(self) -> float:
        """Returns the fraction of the file that has been read, from 0 to 1."""
        return self._share or self._text.fraction()

    def portions(self, size: int | None = None) -> Iterator[Columns]:
        """Yields the rows in portions of `size` rows, or all at once.

        Unusable rows are left out, or are a `BadRow` in each column. JSON Lines have
        the fields of the first portion; an optional column that first appears later is
        an error. A JSON list and gzipped Parquet are always read into memory whole.
        """
        counts, is_empty = Counter(self._bad.counts), True  # of an earlier pass
        with contextlib.ExitStack() as stack:
            opened = self._open(size, stack)
            while True:
                before = counts
                lines: list = []
                values: dict[str, list] = {key: [] for key in opened.index}
                portion = itertools.islice(opened.rows, size)
                while part := list(itertools.islice(portion, _ROWS_AT_ONCE)):
                    lines += [line for line, _ in part]
                    for column, i in zip(values.values(), opened.places, strict=True):
                        column += [row[i] for _, row in part]
                if not lines:
                    break
                self._share = opened.total and lines[-1] / opened.total
                is_empty, counts = False, Counter(self._bad.counts)
                new = dict(counts - before)
                names, index = tuple(opened.names), opened.index
                yield Columns(self.path, names, values, lines, opened.unit, new, index)
        self._share = float(opened.total > 0)
        counts, first = self._bad.counts, self._bad.first
        first = first and f"; the first one: {first}"
        more = f" ({list_counts(counts)}{first})" if counts else ""
        message = f"{self.path}: expected {opened.expected}, received none{more}"
        require(not is_empty, message, error=DataError)

    def _open(self, size: int | None, stack: contextlib.ExitStack) -> _Rows:
        kind = file_format(self.path)
        if kind == "parquet":
            return self._parquet(stack.enter_context(open_parquet(self.path)), size)
        if kind == "json":
            return self._json(size)
        return self._classes() if files.is_folder(self.path) else self._cells()

    def _find(self, names: Sequence[str], header: bool = True) -> dict[str, int]:
        """Returns the indices of the wanted columns."""
        wanted = list(names if self._columns is None else self._columns)
        wanted += [key for key in self._optional if usual_name(key, names) in names]
        return {key: find_column(self.path, key, names, header) for key in wanted}

    def _classes(self) -> _Rows:
        """Opens a folder with one subfolder of text files per class."""
        index, expected = self._find(_CLASS_COLUMNS), "a folder of texts for each class"
        places, rows = tuple(index.values()), self._texts()
        return _Rows("file", _CLASS_COLUMNS, index, places, expected, rows)

    def _texts(self) -> Iterator[tuple[str, list[str]]]:
        for label in files.list_folder(self.path):
            inner = files.join(self.path, label)
            if label.startswith(".") or not files.is_folder(inner):
                continue
            for name in files.list_folder(inner):
                if name.startswith("."):
                    continue
                place = f"{label}/{name}"
                try:
                    yield place, [read_text(files.join(inner, name)), label, place]
                except DataError as e:
                    self._bad.report("files that are not text", str(e))

    def _cells(self) -> _Rows:
        cells = CellReader(self._text, self._bad, **self._layout)
        names, has_names, rows = cells.open()
        index = self._find(names, has_names)
        places = tuple(index.values())
        return _Rows("line", names, index, places, "rows below the header", rows)

    def _json(self, size: int | None) -> _Rows:
        unit, objects = json_objects(self._text, self._bad)
        start = list(itertools.islice(objects, size))
        names = list(dict.fromkeys(name for _, one in start for name in one))
        if self._bad.action == BLANK and not names:
            names = list(self._columns or names)
        index = self._find(names) if start else {}
        wanted = [names[i] for i in index.values()]
        objects = itertools.chain(start, self._without_more(names, objects))
        rows = ((number, map(one.get, wanted)) for number, one in objects)
        rows = plain_rows(f"{self.path}: {unit}", rows, self._bad)
        places = range(len(index))
        return _Rows(unit, names, index, places, "rows of JSON objects", rows)

    def _without_more(self, names: Sequence[str], objects: Iterator) -> Iterator:
        """Yields objects; raises `DataError` for optional columns not in `names`."""
        more = [key for key in self._optional if usual_name(key, names) not in names]
        declared = set(names)
        for number, one in objects:
            for key in () if declared.issuperset(one) else more:
                if one.get(usual_name(key, one)) is not None:
                    raise DataError(
                        f"{self.path}: line {number}: the column {key!r} begins here; "
                        "expected it in the first rows, too, perhaps with null"
                    )
            yield number, one

    def _parquet(self, table: Any, size: int | None) -> _Rows:
        names = table.schema_arrow.names
        index = self._find(names)
        wanted = [names[i] for i in index.values()]
        rows = parquet_rows(table, wanted, size or _PARQUET_ROWS)
        rows = plain_rows(f"{self.path}: row", rows, self._bad)
        total = table.metadata.num_rows
        return _Rows("row", names, index, range(len(index)), "rows", rows, total)


def read_columns(
    path: str | os.PathLike,
    columns: Sequence[str] | None = None,
    *,
    on_bad_input: str = "stop",
    **layout,
) -> Columns:
    """Reads a whole file; see `ColumnReader`, also for the other arguments.

    With `on_bad_input="skip"`, rows that cannot be read are left out and counted.
    Raises the errors of `ColumnReader.portions`, also if no row is usable.
    """
    bad = BadRows(on_bad_input)
    return next(ColumnReader(path, columns, bad=bad, **layout).portions())
