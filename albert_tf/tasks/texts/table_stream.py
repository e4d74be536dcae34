"""Reads a table of texts in portions, whatever its size."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Protocol

from albert_tf.storage import files, streams
from albert_tf.tables.reader import ColumnReader
from albert_tf.tasks.texts.text_table import TextTable, make_table

# Ids are compared within this many rows: all ids of a very large file would need too
# much memory.
_COMPARED_IDS = 1_000_000


class Portions(Protocol):
    """A table that is read from its start to its end."""

    def portions(self, rows: int) -> Iterator[TextTable]:
        """Yields tables of this number of rows; only the last one has fewer."""

    def fraction(self) -> float:
        """Returns how much has been read, from 0 to 1."""


class TableStream:
    """A table without labels in a file; see `text_table.read_table`.

    Its first row is read at once, so that a wrong column is an error before a model is
    loaded.

    Args:
        path: str. The file.
        text_column: str.
        text_pair_column: str. Empty for single texts.
        id_column: str. Empty for numbers from 0.
        delimiter: str or None.
        header: bool.
        quoting: bool.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        text_column: str = "text",
        text_pair_column: str = "",
        id_column: str = "",
        delimiter: str | None = None,
        header: bool = True,
        quoting: bool = True,
    ):
        self._names = (text_column, text_pair_column, id_column)
        wanted = list(dict.fromkeys(filter(None, self._names)))
        self._columns = ColumnReader(
            path, wanted, delimiter=delimiter, header=header, quoting=quoting
        )
        name = self._columns.path
        # A pipe cannot be read twice.
        if streams.is_regular(name) or not files.exists(name):
            next(self._columns.portions(1))

    def fraction(self) -> float:
        return self._columns.fraction()

    def portions(self, rows: int) -> Iterator[TextTable]:
        """Yields tables; see `Portions`.

        Raises:
            UsageError: If the delimiter is not one character, or pyarrow is missing.
            DataError: If the file cannot be read or is malformed; the message names the
                line.
        """
        text, pair, name = self._names
        seen: dict[str, int] = {}
        first = 0
        for columns in self._columns.portions(rows):
            values = columns.values
            if len(seen) >= _COMPARED_IDS:
                seen = {}
            table = make_table(
                columns,
                values[text],
                values[pair] if pair else None,
                None,
                values[name] if name else None,
                seen=seen,
            )
            if not name:
                table = dataclasses.replace(table, ids=_numbers(first, len(table)))
            first += len(table)
            yield table


class WholeTable:
    """A table in memory, in portions.

    Args:
        table: `TextTable`.
    """

    def __init__(self, table: TextTable):
        self._table = table
        self._done = 0

    def fraction(self) -> float:
        return self._done / len(self._table)

    def portions(self, rows: int) -> Iterator[TextTable]:
        """Yields tables; see `Portions`."""
        for first in range(0, len(self._table), rows):
            self._done = min(first + rows, len(self._table))
            yield self._table.select(range(first, self._done))


def _numbers(first: int, count: int) -> list[str]:
    return [str(i) for i in range(first, first + count)]
