"""Reads tables of texts and labels: CSV or TSV, with or without quotes, also gzipped.

`TableSettings` describes the columns, once for all commands.
"""

import dataclasses
import os
from collections.abc import Sequence

from albert_tf.errors import DataError
from albert_tf.settings import setting
from albert_tf.storage import files
from albert_tf.tasks.columns import read_columns

# Longest cell the csv module accepts. Its default, 131,072, is too short for some
# documents.
_LONGEST_CELL = 1 << 24


@dataclasses.dataclass(frozen=True)
class TextTable:
    """The columns of a table.

    Attributes:
        path: str. File the table was read from, for error messages.
        texts: list of str. First texts.
        text_pairs: list of str. Second texts, or None.
        labels: list of str. Labels as written in the file, or None.
        lines: list of int. Line of the file where each row ends, counted from 1.
    """

    path: str
    texts: list[str]
    text_pairs: list[str] | None
    labels: list[str] | None
    lines: list[int]

    def __len__(self) -> int:
        return len(self.texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Where the texts are in a table, and how the table is written."""

    text_column: str = setting("Name or number (from 0) of the text's column.", "text")
    text_pair_column: str = setting(
        "Name or number of the second text's column, for pairs of texts.", ""
    )
    delimiter: str = setting(
        "Character between cells. Default: tab for .tsv, comma otherwise.", ""
    )
    header: bool = setting("Whether the first line names the columns.", True)
    quoting: bool = setting(
        "Whether double quotes enclose cells, as in CSV; false for GLUE's files.", True
    )

    def read_table(self, path: str | os.PathLike) -> TextTable:
        """Reads a table; see the function `read_table`."""
        return read_table(path, **self._options())

    def _options(self) -> dict:
        return {
            "text_column": self.text_column,
            "text_pair_column": self.text_pair_column or None,
            "label_column": None,
            "delimiter": self.delimiter or None,
            "header": self.header,
            "quoting": self.quoting,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTableSettings(TableSettings):
    """Where the texts and the labels are in a table."""

    label_column: str = setting("Name or number of the label's column.", "label")

    def _options(self) -> dict:
        return {**super()._options(), "label_column": self.label_column}


@dataclasses.dataclass(frozen=True)
class TableSource:
    """A table as the source of a task's examples (see `task.Source`).

    Attributes:
        file: str. Path of the table, within the folder of the data if that is known
            only later.
        columns: `TableSettings`.
    """

    file: str
    columns: TableSettings

    def read(self, folder: str = "") -> TextTable:
        """Returns the table; see `read_table`."""
        return self.columns.read_table(files.join(folder, self.file))


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
    """Reads the columns of interest; the other columns may hold anything.

    Args:
        path: str. CSV or TSV file in UTF-8, local or remote; `.gz` is unpacked.
        text_column: str. Name of the column in the first line, or its number from 0.
            Without a header only numbers are possible.
        text_pair_column: str or None. Column of the second texts.
        label_column: str or None. Column of the labels.
        delimiter: str. One character. Default: tab for `.tsv`, comma otherwise.
        header: bool. Whether the first line names the columns.
        quoting: bool. Whether `"` encloses cells, as in CSV. False for GLUE's files,
            where it is a character like any other.

    Raises:
        UsageError: If the delimiter is not one character.
        DataError: If the file cannot be read or is malformed; the message names the
            line.
    """
    wanted = [text_column, text_pair_column, label_column]
    names = [None if name in (None, "") else str(name) for name in wanted]
    columns = read_columns(
        path,
        [name for name in names if name is not None],
        delimiter=delimiter,
        header=header,
        quoting=quoting,
    )
    values = [None if name is None else columns.values[name] for name in names]
    return TextTable(columns.path, *values, columns.lines)


def find_labels(table: TextTable) -> list[str]:
    """Returns the distinct labels, sorted; numerically if all are whole numbers.

    Raises:
        DataError: If a label is empty, or if there are fewer than two labels.
    """
    for label, line in zip(table.labels, table.lines, strict=True):
        if not label:
            raise DataError(f"{table.path}: line {line}: the label is empty")
    labels = sorted(set(table.labels))
    if len(labels) < 2:
        raise DataError(
            f"{table.path}: expected at least 2 different labels, received "
            f"only {labels[0]!r}"
        )
    try:
        return sorted(labels, key=int)
    except ValueError:
        return labels


def label_ids(table: TextTable, labels: Sequence[str]) -> list[int]:
    """Returns the index in `labels` of each row's label.

    Raises:
        DataError: If a label of the table is not in `labels`.
    """
    index = {label: i for i, label in enumerate(labels)}
    for label, line in zip(table.labels, table.lines, strict=True):
        if label not in index:
            known = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
            raise DataError(
                f"{table.path}: line {line}: expected one of the labels {known}, "
                f"received {label!r}"
            )
    return [index[label] for label in table.labels]
