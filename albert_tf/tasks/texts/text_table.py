"""Tables of texts and labels: in memory, and in portions of a file of any size."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Protocol

from albert_tf.errors import DataError
from albert_tf.storage import files, streams
from albert_tf.tables.columns import BadRows, Columns, Ids, warn_of_skipped
from albert_tf.tables.reader import ColumnReader
from albert_tf.tasks.task import Examples
from albert_tf.wording import list_counts

# What stands for no label where all other labels are of a set: SNLI and MultiNLI write
# "-" where the annotators did not agree, IMDb has a folder of reviews without labels.
_NO_LABEL = {
    "-": {"contradiction", "entailment", "neutral", "not_entailment"},
    "unsup": {"neg", "pos"},
}


@dataclasses.dataclass(frozen=True)
class TextTable(Examples):
    """The columns of a table.

    Attributes:
        path: str. File the table was read from, for error messages.
        texts: list of str. First texts.
        text_pairs: list of str. Second texts, or None.
        labels: list. Labels as written in the file, or None: a str per row, or for
            several labels per row a tuple of str.
        lines: list of int. Line of the file where each row ends, counted from 1.
        ids: list of str. Name of each row. Default: its number from 0.
        unit: str. What `lines` counts: "line", or "row".
        skipped: dict. Number of rows of the file that were left out or filled, by
            reason.
    """

    path: str
    texts: list[str]
    text_pairs: list[str] | None
    labels: list[str] | list[tuple[str, ...]] | None
    lines: list[int]
    ids: list[str] | None = None
    unit: str = "line"
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.ids is None:
            object.__setattr__(self, "ids", [str(i) for i in range(len(self.texts))])

    def where(self, row: int) -> str:
        """Returns file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


class Portions(Protocol):
    """A table that is read from its start to its end."""

    def portions(self, rows: int) -> Iterator[TextTable]:
        """Yields tables of this number of rows; only the last one has fewer."""

    def fraction(self) -> float:
        """Returns how much has been read, from 0 to 1."""


class TableReader:
    """A table of texts in a file.

    Whether the labels are good ones is not checked here; see `tables` and `targets`.

    Args:
        path: str. File or folder; see `reader.ColumnReader`.
        settings: `tables.TextFileSettings`. Where the texts, and perhaps the labels,
            are.
        short_rows: str. See `reader.ColumnReader`.
        on_bad_input: str. "stop" or "skip": what to do with a row that cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings,
        short_rows: str = "stop",
        on_bad_input: str = "stop",
    ):
        self._settings = settings
        self._on_bad_input = on_bad_input
        self._columns = ColumnReader(
            path,
            list(dict.fromkeys(filter(None, settings.columns))),
            short_rows=short_rows,
            bad=BadRows(on_bad_input),
            **settings.layout,
        )

    def fraction(self) -> float:
        return self._columns.fraction()

    def check(self) -> None:
        """Reads the first row, so that a wrong column is an error at once."""
        path = self._columns.path
        # A pipe cannot be read twice.
        if streams.is_regular(path) or not files.exists(path):
            next(self._columns.portions(1))

    def portions(self, rows: int | None = None) -> Iterator[TextTable]:
        """Yields tables; see `Portions`. None: the whole file is one.

        Raises:
            UsageError: If the delimiter is not one character, or pyarrow is missing.
            DataError: If the file cannot be read or is malformed; the message names the
                line.
        """
        text, pair, label, _ = self._settings.columns
        known = Ids()
        first = 0
        for columns in self._columns.portions(rows):
            index = columns.index
            if label and index[label] in [index[text], index.get(pair)]:
                raise DataError(
                    f"{columns.path}: expected a label in addition to the text, "
                    f"received one column for both, {columns.names[index[label]]!r}"
                )
            table = make_table(
                columns, self._settings, self._on_bad_input, known, first
            )
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


def make_table(
    columns: Columns,
    settings,
    on_bad_input: str = "stop",
    known: Ids | None = None,
    first: int = 0,
) -> TextTable:
    """Makes a table of columns that were read.

    Args:
        columns: `Columns`. Labels may be missing.
        settings: `tables.TextFileSettings`. Which column is what.
        on_bad_input: str. "stop" or "skip".
        known: `Ids` or None. Ids of earlier portions, which must not come again.
        first: int. Number of the first row, where there is no column of ids.

    Raises:
        DataError: If a row cannot be used, or none is left.
    """
    bad = BadRows(on_bad_input)
    bad.counts.update(columns.skipped)
    texts, text_pairs, labels, ids = map(columns.values.get, settings.columns)
    skip_label = None
    if labels is not None:
        labels = _label_values(labels, settings.label_separator)
        skip_label = settings.skip_label or _unlabelled_mark(labels)
    known = known or Ids()
    kept = []
    for row in range(len(columns)):
        problem = _row_problem(row, texts, text_pairs, labels, ids)
        if not problem and skip_label and labels[row] == skip_label:
            bad.counts[f"rows labelled {skip_label!r}"] += 1
            continue
        if not problem and ids is not None:
            problem = known.problem(ids[row], f"{columns.unit} {columns.lines[row]}")
        if problem:
            bad.report("rows that cannot be used", f"{columns.where(row)}: {problem}")
        else:
            kept.append(row)
    if not kept:
        raise DataError(f"{columns.path}: no row is left ({list_counts(bad.counts)})")
    warn_of_skipped(columns.path, bad.counts)
    if ids is None:
        names = [str(i) for i in range(first, first + len(kept))]
    else:
        names = [ids[row] for row in kept]
    values = (texts, text_pairs, labels, columns.lines)
    chosen = [None if v is None else [v[row] for row in kept] for v in values]
    return TextTable(columns.path, *chosen, names, columns.unit, dict(bad.counts))


def _label_values(labels: list, separator: str | None) -> list:
    """Returns a str per row, or a tuple of str where rows may have several labels."""
    if separator:
        labels = [
            [part.strip() for part in label.split(separator)]
            if isinstance(label, str)
            else label
            for label in labels
        ]
    return [
        tuple(part for part in label if part != "")
        if isinstance(label, list)
        else label or ""
        for label in labels
    ]


def _unlabelled_mark(labels: list) -> str:
    """Returns what stands for a missing label in this table, or an empty string."""
    if not all(isinstance(label, str) for label in labels):
        return ""
    names = set(labels)
    for mark, others in _NO_LABEL.items():
        if mark in names and names != {mark} and names <= others | {mark}:
            return mark
    return ""


def _row_problem(row, texts, text_pairs, labels, ids) -> str:
    """Returns why a row cannot be used, or an empty string."""
    for name, column in (("text", texts), ("second text", text_pairs), ("id", ids)):
        if column is not None and not isinstance(column[row], str):
            found = "none" if column[row] is None else "a list"
            return f"expected a {name}, received {found}"
    if ids is not None and not ids[row]:
        return "the id is empty"
    label = labels[row] if labels is not None else ""
    if not isinstance(label, str) and not all(isinstance(part, str) for part in label):
        return "expected a list of label names, received a list of other things"
    return ""
