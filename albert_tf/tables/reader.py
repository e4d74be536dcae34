"""Reads the columns of a file: CSV, TSV, JSON, JSON Lines or Parquet, also gzipped.

The callers decide what the columns mean.
"""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.tables.columns import (
    BLANK,
    REFUSE,
    BadRow,
    BadRows,
    Columns,
    file_format,
    find_column,
    usual_name,
)
from albert_tf.tables.text_stream import (
    MAX_ROW_BYTES,
    TextStream,
    read_text,
    split_lines,
    without_mark,
)
from albert_tf.wording import list_counts

# Longest cell the csv module accepts. Its default, 131,072, is too short for a book.
_LONGEST_CELL = 1 << 24
_ANY_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_HALF = re.compile("[\ud800-\udfff]")
# Parquet rows read at once when the whole file is one portion.
_PARQUET_ROWS = 1 << 14
_CLASS_COLUMNS = ["text", "label", "file"]
# Rows transposed to columns at once: more would trigger slow garbage collections.
_ROWS_AT_ONCE = 256


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
        exact: Columns whose numbers and truth values keep their type, where the format
            has types; values of all other columns become text.
        delimiter: One character between cells. Default: tab for `.tsv`, none for
            `.txt`, else comma.
        header: Of cells: whether the first line names the columns.
        quoting: Of cells: whether `"` encloses them, as in CSV. False for GLUE's files,
            where it is an ordinary character.
        short_rows: How to handle a row with too few cells: "stop" and "skip" as in
            `BadRows`; "fill" treats the missing cells as empty. All but "stop" are
            counted.
        bad: Handles rows that cannot be read. Default: stop.
        kind: Result of `file_format`, for a name whose extension does not tell the
            format.
        text: Stream of the file, if it is not to be read in the default way.
        raw: Of JSON: the columns are fields with exactly these names, which may be
            missing from any row, and values of any kind stay as they are.
        may_be_empty: Whether JSON Lines and Parquet may have no rows.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        columns: Sequence[str] | None = None,
        *,
        optional: Sequence[str] = (),
        exact: Collection[str] = (),
        delimiter: str | None = None,
        header: bool = True,
        quoting: bool = True,
        short_rows: str = "stop",
        bad: BadRows | None = None,
        kind: str | None = None,
        text: TextStream | None = None,
        raw: bool = False,
        may_be_empty: bool = False,
    ):
        self.path = os.fspath(path)
        self._columns = columns
        self._optional = optional
        self._exact = exact
        self._cells_are = (delimiter, header, quoting)
        self._short_rows = short_rows
        self._bad = bad or BadRows(REFUSE)
        self._kind = kind or file_format(self.path)
        self._text = text or TextStream(self.path, self._bad, MAX_ROW_BYTES, rows=True)
        self._raw = raw
        self._may_be_empty = may_be_empty
        self._at_header = False
        self._share = 0.0  # fraction of the Parquet rows read so far

    def fraction(self) -> float:
        """Returns the fraction of the file that has been read, from 0 to 1."""
        return self._share or self._text.fraction()

    def portions(self, size: int | None = None) -> Iterator[Columns]:
        """Yields the rows in portions of `size` rows, or all at once.

        Unusable rows are left out, or are a `BadRow` in each column. JSON Lines have
        the fields of the first portion; an optional column that first appears later is
        an error. A JSON list and gzipped Parquet are always read into memory whole.

        Raises:
            UsageError: If the delimiter is not one character, or pyarrow is missing.
            DataError: If the file cannot be read, is malformed or has no rows; the
                message names the line.
        """
        counts = Counter(self._bad.counts)  # of an earlier pass
        typed = {"parquet": self._parquet, "json": self._json}.get(self._kind)
        is_folder = not typed and files.is_folder(self.path)
        rows = (typed or (self._classes if is_folder else self._cells))(size)
        unit, names, index, expected = next(rows)
        places = range(len(index)) if typed else index.values()
        is_empty = not self._may_be_empty
        while True:
            before = counts
            lines: list = []
            values: dict[str, list] = {key: [] for key in index}
            portion = itertools.islice(rows, size)
            while part := list(itertools.islice(portion, _ROWS_AT_ONCE)):
                lines += [line for line, _ in part]
                for column, i in zip(values.values(), places, strict=True):
                    column += [row[i] for _, row in part]
            if not lines:
                break
            is_empty, counts = False, Counter(self._bad.counts)
            new = dict(counts - before)
            yield Columns(self.path, tuple(names), values, lines, unit, new, index)
        counts, first = self._bad.counts, self._bad.first
        first = first and f"; the first one: {first}"
        more = f" ({list_counts(counts)}{first})" if counts else ""
        message = f"{self.path}: expected {expected}, received none{more}"
        require(not is_empty, message, error=DataError)

    def _find(self, names: Sequence[str], header: bool = True) -> dict[str, int]:
        """Returns the indices of the wanted columns."""
        wanted = list(names if self._columns is None else self._columns)
        wanted += [key for key in self._optional if usual_name(key, names) in names]
        return {key: find_column(self.path, key, names, header) for key in wanted}

    # The four methods below first yield a header: the unit in which rows are counted,
    # all column names, the index of each wanted column, and what the message about an
    # empty file says it expected. Then they yield (line, row). Rows of typed formats
    # contain only the wanted columns.

    def _classes(self, size: int | None) -> Iterator[Any]:
        """Reads a folder with one subfolder of text files per class."""
        index = self._find(_CLASS_COLUMNS)
        yield "file", _CLASS_COLUMNS, index, "a folder of texts for each class"
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

    def _cells(self, size: int | None) -> Iterator[Any]:
        """Reads lines of cells."""
        path, (delimiter, header, quoting) = self.path, self._cells_are
        is_text = delimiter is None and self._kind == "lines"
        if is_text:
            delimiter, header, quoting = "\0", False, False  # never occurs in text
        if delimiter is None:
            delimiter = "\t" if self._kind == "tabs" else ","
        is_one = len(delimiter) == 1 and delimiter not in '"\r\n'
        require(is_one, "delimiter must be one character", delimiter)
        rows = (self._csv_rows if quoting else self._split_rows)(delimiter)
        # A table without a header has the width of its first row.
        self._at_header = header or (self._bad.action == BLANK and not is_text)
        first = next(rows, None)
        self._at_header = False
        message = f"{path}: expected a table with rows, received an empty file"
        require(first, message, error=DataError)
        names = first[1]
        if not header:
            names = ["text"] if is_text else [str(i) for i in range(len(names))]
            rows = itertools.chain([first], rows)
        index = self._find(names, header or is_text)
        yield "line", names, index, "rows below the header"
        width = len(names)
        for line, row in rows:
            if not isinstance(row, BadRow) and len(row) != width:
                row = self._resized(line, row, width)
            if row:
                yield line, row

    def _json(self, size: int | None) -> Iterator[Any]:
        """Reads one object per line, or one list of objects."""
        pieces = self._text.pieces()
        first = next(pieces, "")
        pieces = itertools.chain([first], pieces)
        if first.lstrip()[:1] == "[":
            unit, items = "row", _json_list(self.path, "".join(pieces))
        else:
            unit, items = "line", self._json_lines(pieces)
        objects = self._objects(unit, items)
        start = list(itertools.islice(objects, size))
        names = list(dict.fromkeys(name for _, one in start for name in one))
        if self._raw or (self._bad.action == BLANK and not names):
            names = list(self._columns or names)
        index = self._find(names) if start else {}
        yield unit, names, index, "rows of JSON objects"
        wanted = [names[i] for i in index.values()]
        objects = itertools.chain(start, self._without_more(names, objects))
        rows = ((number, map(one.get, wanted)) for number, one in objects)
        if self._raw:
            yield from ((number, list(row)) for number, row in rows)
        else:
            yield from self._plain_rows(unit, index, rows)

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

    def _objects(
        self, unit: str, items: Iterable[tuple[int, Any]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the items that are objects, and reports the others."""
        for number, item in items:
            if not isinstance(item, dict | BadRow):
                reason = "rows that are not objects"
                fault = f"expected a JSON object, received {type(item).__name__}"
                if isinstance(item, Exception):
                    reason, fault = "rows that are not JSON", f"not JSON: {item}"
                item = self._unusable(reason, f"{self.path}: {unit} {number}: {fault}")
            if item is not None:
                yield number, item

    def _parquet(self, size: int | None) -> Iterator[Any]:
        with open_parquet(self.path) as table:
            names = table.schema_arrow.names
            index = self._find(names)
            yield "row", names, index, "rows"
            wanted = [names[i] for i in index.values()]
            done = 0
            for batch in table.iter_batches(
                size or _PARQUET_ROWS, columns=list(dict.fromkeys(wanted))
            ):
                columns = [_python_values(batch.column(name)) for name in wanted]
                rows = zip(*columns, strict=True) if columns else [()] * len(batch)
                yield from self._plain_rows("row", index, enumerate(rows, done + 1))
                done += len(batch)
                self._share = done / table.metadata.num_rows

    def _split_rows(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yields (line number, cells) of each non-blank line."""
        for number, line in enumerate(self._text.lines(), 1):
            if row := self._used(line.split(delimiter), [line], not line):
                yield number, row

    def _csv_rows(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yields (number of its last line, cells) of each non-blank row."""
        before = csv.field_size_limit(_LONGEST_CELL)
        lines: list[str] = []  # of the row
        is_quoted, width = False, 0

        def watched() -> Iterator[str]:
            for piece in self._text.pieces():
                # Every carriage return ends a line.
                for line in _ANY_LINE.findall(piece):
                    lines.append(line)
                    yield without_mark(line)[0]

        reader = csv.reader(watched(), delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                width = width or lines[0].count(delimiter) + 1
                if len(lines) == 1:
                    is_quoted |= lines[0].count(delimiter) >= len(cells)
                elif not is_quoted:
                    self._check_lines(lines, reader.line_num, width, delimiter)
                if len(lines) > 1:
                    self._bad.counts["rows of several lines"] += 1
                if row := self._used(cells, lines, not cells):
                    # The limit is global: other code may read files between two rows.
                    csv.field_size_limit(before)
                    yield reader.line_num, row
                    csv.field_size_limit(_LONGEST_CELL)
                lines.clear()
        except csv.Error as e:
            start = reader.line_num - len(lines) + 1
            raise DataError(
                f"{self.path}: line {start}: not CSV: {e} (if quotes are ordinary "
                "characters in this file, use --noquoting)"
            ) from None
        finally:
            csv.field_size_limit(before)

    def _check_lines(
        self, lines: Sequence[str], last: int, width: int, delimiter: str
    ) -> None:
        """Raises `DataError` for a multi-line row if most of its lines look like rows.

        A quotation mark that is an ordinary character joins its row with all rows up to
        the next quotation mark. A comma followed by a space counts as part of the text.
        """
        end = re.compile(re.escape(delimiter) + r"(?=\S)" * (delimiter != "\t"))
        widths = [len(end.findall(line)) + 1 for line in lines if line.strip()]
        is_rows = widths[0] == widths[-1] == width
        if width > 1 and is_rows and 2 * widths.count(width) > len(widths):
            raise DataError(
                f"{self.path}: lines {last - len(lines) + 1} to {last}: one row, by "
                f"its quotes, but these are lines of {width} cells; if quotes are "
                "ordinary characters in this file, use --noquoting; if a cell has "
                "several lines, write the table as .jsonl or .parquet"
            )

    def _json_lines(self, pieces: Iterable[str]) -> Iterator[tuple[int, Any]]:
        """Yields the parsed values of non-blank lines, or the parsing errors."""
        for number, line in enumerate(split_lines(pieces), 1):
            if item := self._used(line, [line], not line.strip()):
                try:
                    item = json.loads(line) if item is line else item
                except (ValueError, RecursionError) as e:
                    item = e
                yield number, item

    def _used(self, row: Any, lines: Sequence[str], is_blank: bool) -> Any:
        """Returns a row, or what `_unusable` does if its lines are blank or no text."""
        for _, problem in map(without_mark, lines):
            if problem:
                require(not self._at_header, problem[1], error=DataError)
                return self._unusable(*problem)
        if is_blank:
            self._bad.counts["blank lines"] += 1
        return None if is_blank else row

    def _unusable(self, reason: str, message: str) -> BadRow | None:
        """Returns the stand-in for an unusable row, or reports the row."""
        blank = self._bad.action == BLANK
        return BadRow(message) if blank else self._bad.report(reason, message)

    def _resized(self, line: int, row: list[str], width: int) -> Any:
        """Returns a row resized to the table's width, or None to leave it out."""
        counts = self._bad.counts
        if self._short_rows == "fill":
            counts["rows of another width, filled or cut"] += 1
            return (row + [""] * width)[:width]
        if self._short_rows == "skip" and len(row) < width:
            counts["short rows"] += 1
            return None
        problem = f"expected {width} columns, received {len(row)}"
        problem = f"{self.path}: line {line}: {problem}"
        return self._unusable("rows of another width", problem)

    def _plain_rows(
        self, unit: str, index: Mapping[str, int], rows: Iterable[tuple[int, Iterable]]
    ) -> Iterator[tuple[int, list]]:
        """Yields rows of strings, lists and None; reports rows with other values."""
        exact = [key in self._exact for key in index]
        for number, row in rows:
            try:
                values = [
                    _plain(x, self._bad.counts, e)
                    for x, e in zip(row, exact, strict=True)
                ]
            except (ValueError, RecursionError) as e:
                reason = str(e) if isinstance(e, ValueError) else "nested too deeply"
                reason = f"{self.path}: {unit} {number}: {reason}"
                values = self._unusable("rows of other values", reason)
            if values is not None:
                yield number, values


def read_columns(
    path: str | os.PathLike,
    columns: Sequence[str] | None = None,
    *,
    on_bad_input: str = "stop",
    **layout,
) -> Columns:
    """Reads a whole file; see `ColumnReader`, also for the other arguments.

    With `on_bad_input="skip"`, rows that cannot be read are left out and counted. The
    errors are those of `ColumnReader.portions`; a file without a usable row is one,
    too.
    """
    bad = BadRows(on_bad_input)
    return next(ColumnReader(path, columns, bad=bad, **layout).portions())


@contextlib.contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file, which may be gzipped, as pyarrow's `ParquetFile`.

    Raises `UsageError` if pyarrow is not installed, and `DataError` if the file cannot
    be read, also inside the block.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"{path}: reading parquet needs pyarrow: pip install albert_tf[parquet]"
        ) from None
    with _seekable(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except DataError:
            raise
        except (OSError, ValueError, pa.ArrowException) as e:
            reason = " ".join(str(e).split())[:200]
            raise DataError(f"{path}: cannot be read as Parquet: {reason}") from None


def _seekable(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if path.lower().endswith(".gz"):
        return io.BytesIO(b"".join(TextStream(path).blocks()))
    return files.reading(path)


def _python_values(column: Any) -> list:
    """Returns the values of an Arrow column, with bytes in place of invalid UTF-8.

    `_plain` raises an error for these bytes, and `_plain_rows` adds the row.
    """
    try:
        return column.to_pylist()
    except UnicodeDecodeError as e:
        if len(column) == 1:
            return [e.object]
        single = (column[i : i + 1] for i in range(len(column)))
        return [value for one in single for value in _python_values(one)]


def _json_list(path: str, text: str) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(json.loads(text), 1)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: not JSON: {e}") from None


def whole_characters(text: str, counts: Counter[str]) -> str:
    """Returns text with spaces in place of lone surrogates, which JSON can contain."""
    if not text.isascii():
        text, halves = _HALF.subn(" ", text)
        if halves:
            counts["surrogates_replaced"] += halves
    return text


def _plain(value: Any, counts: Counter[str], exact: bool) -> Any:
    """Returns a str, list or None (also for NaN); if `exact`, also a bool or number."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("expected text, received a NUL character")
        return whole_characters(value, counts)
    if value is None or isinstance(value, BadRow) or (exact and isinstance(value, int)):
        return value
    if isinstance(value, float) and (exact or not math.isfinite(value)):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item, counts, exact) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        raise ValueError(f"expected text, a number or a list, received {value!r:.80}")
    return str(value)
