"""Reads tables of cells: CSV, TSV, and one text per line."""

import csv
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.errors import DataError, require
from albert_tf.tables.columns import BLANK, REFUSE, BadRow, BadRows, file_format
from albert_tf.tables.text_stream import TextStream, used_row, without_mark

# Longest cell the csv module accepts. Its default, 131,072, is too short for a book.
_LONGEST_CELL = 1 << 24
_ANY_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


@dataclasses.dataclass
class CellReader:
    """The rows of a file of cells.

    Args:
        delimiter: One character between cells. Default: tab for `.tsv`, none for
            `.txt`, whose lines are one column, `text`; else comma.
        header: Whether the first line names the columns.
        quoting: Whether `"` encloses cells, as in CSV. False for GLUE's files, where it
            is an ordinary character.
        short_rows: How to handle a row with too few cells: "stop" and "skip" as in
            `BadRows`; "fill" treats the missing cells as empty. All but "stop" are
            counted.
    """

    text: TextStream
    bad: BadRows
    delimiter: str | None = None
    header: bool = True
    quoting: bool = True
    short_rows: str = "stop"

    def open(self) -> tuple[list[str], bool, Iterator[tuple[int, Any]]]:
        """Returns the columns' names, whether they have any, and an iterator.

        Columns without names have numbers. The iterator yields (line, row).
        """
        path, bad, kind = self.text.path, self.bad, file_format(self.text.path)
        is_text = self.delimiter is None and kind == "lines"
        if is_text:
            # NUL never occurs in text.
            self.delimiter, self.header, self.quoting = "\0", False, False
        elif self.delimiter is None:
            self.delimiter = "\t" if kind == "tabs" else ","
        is_one = len(self.delimiter) == 1 and self.delimiter not in '"\r\n'
        require(is_one, "delimiter must be one character", self.delimiter)
        rows = (self._csv_rows if self.quoting else self._split_rows)()
        # A table without a header has the width of its first row.
        if self.header or (bad.action == BLANK and not is_text):
            self.bad = BadRows(REFUSE, bad.counts)
        first, self.bad = next(rows, None), bad
        message = f"{path}: expected a table with rows, received an empty file"
        require(first, message, error=DataError)
        names = first[1]
        if not self.header:
            names = ["text"] if is_text else [str(i) for i in range(len(names))]
            rows = itertools.chain([first], rows)
        return names, self.header or is_text, self._of_width(names, rows)

    def _of_width(self, names: list[str], rows: Iterator) -> Iterator[tuple[int, Any]]:
        width = len(names)
        for line, row in rows:
            if not isinstance(row, BadRow) and len(row) != width:
                row = self._resized(line, row, width)
            elif self.header and row == names and width > 1:  # two files in one
                message = f"{self.text.path}: line {line}: repeats the header"
                row = self.bad.stand_in("rows that repeat the header", message)
            if row:
                yield line, row

    def _split_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields (line number, cells) of each non-blank line."""
        for number, line in enumerate(self.text.lines(), 1):
            row = line.split(self.delimiter)
            if row := used_row(row, [line], not line, self.bad):
                yield number, row

    def _csv_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields (number of its last line, cells) of each non-blank row."""
        delimiter, before = self.delimiter, csv.field_size_limit(_LONGEST_CELL)
        lines: list[str] = []  # of the row
        is_quoted, width = False, 0

        def watched() -> Iterator[str]:
            for piece in self.text.pieces():
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
                    self._check_lines(lines, reader.line_num, width)
                if len(lines) > 1:
                    self.bad.counts["rows of several lines"] += 1
                if row := used_row(cells, lines, not cells, self.bad):
                    # The limit is global: other code may read files between two rows.
                    csv.field_size_limit(before)
                    yield reader.line_num, row
                    csv.field_size_limit(_LONGEST_CELL)
                lines.clear()
        except csv.Error as e:
            start = reader.line_num - len(lines) + 1
            raise DataError(
                f"{self.text.path}: line {start}: not CSV: {e} (if quotes are ordinary "
                "characters in this file, use --noquoting)"
            ) from None
        finally:
            csv.field_size_limit(before)

    def _check_lines(self, lines: Sequence[str], last: int, width: int) -> None:
        """Raises `DataError` if most lines of a multi-line row look like rows."""
        # A quotation mark that is an ordinary character joins its row with all rows up
        # to the next quotation mark. A comma followed by a space counts as part of the
        # text.
        is_tab = self.delimiter == "\t"
        end = re.compile(re.escape(self.delimiter) + r"(?=\S)" * (not is_tab))
        widths = [len(end.findall(line)) + 1 for line in lines if line.strip()]
        is_rows = widths[0] == widths[-1] == width
        if width > 1 and is_rows and 2 * widths.count(width) > len(widths):
            raise DataError(
                f"{self.text.path}: lines {last - len(lines) + 1} to {last}: one row, "
                f"by its quotes, but these are lines of {width} cells; if quotes are "
                "ordinary characters in this file, use --noquoting; if a cell has "
                "several lines, write the table as .jsonl or .parquet"
            )

    def _resized(self, line: int, row: list[str], width: int) -> Any:
        """Returns a row resized to the table's width, or None to leave it out."""
        counts = self.bad.counts
        if self.short_rows == "fill":
            counts["rows of another width, filled or cut"] += 1
            return (row + [""] * width)[:width]
        if self.short_rows == "skip" and len(row) < width:
            counts["short rows"] += 1
            return None
        problem = f"expected {width} columns, received {len(row)}"
        problem = f"{self.text.path}: line {line}: {problem}"
        return self.bad.stand_in("rows of another width", problem)
