"""A table of texts and labels in memory, and how it is read."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from albert_tf.data.wording import list_counts
from albert_tf.errors import DataError
from albert_tf.tables.columns import BadRows, Columns, warn_of_skipped
from albert_tf.tables.reader import read_columns

# What stands for no label where all other labels are of a set: SNLI and MultiNLI write
# "-" where the annotators did not agree, IMDb has a folder of reviews without labels.
_NO_LABEL = {
    "-": {"contradiction", "entailment", "neutral", "not_entailment"},
    "unsup": {"neg", "pos"},
}


@dataclasses.dataclass(frozen=True)
class TextTable:
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

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int]) -> "TextTable":
        """Returns a table of some rows, with the ids that they have in this one."""
        names = ("texts", "text_pairs", "labels", "lines", "ids")
        columns = {name: getattr(self, name) for name in names}
        return dataclasses.replace(
            self,
            **{
                name: None if column is None else [column[i] for i in rows]
                for name, column in columns.items()
            },
        )

    def where(self, row: int) -> str:
        """Returns file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


def read_table(
    path: str | os.PathLike,
    *,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str | None = "label",
    id_column: str | None = None,
    label_separator: str | None = None,
    skip_label: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    quoting: bool = True,
    short_rows: str = "stop",
    on_bad_input: str = "stop",
) -> TextTable:
    """Reads the columns of interest; the other columns may hold anything.

    Whether the labels are good ones is not checked here; see `tables` and `targets`.

    Args:
        path: str. CSV, TSV, JSON lines or Parquet file, local or remote; `.gz` is
            unpacked. See `reader.ColumnReader`.
        text_column: str. Name of the column in the first line, or its number from 0.
            Without a header only numbers are possible.
        text_pair_column: str or None. Column of the second texts.
        label_column: str or None. Column of the labels.
        id_column: str or None. Column of the names of the rows.
        label_separator: str or None. Text between the labels of a row, if it may have
            several. White space around labels, and empty labels, are dropped.
        skip_label: str or None. Rows with this label are left out and counted. None:
            "-" or "unsup", if all other labels are those of natural language inference
            or of IMDb.
        delimiter: str. One character. Default: tab for `.tsv`, comma otherwise.
        header: bool. Whether the first line names the columns.
        quoting: bool. Whether `"` encloses cells, as in CSV. False for GLUE's files,
            where it is a character like any other.
        short_rows: str. See `reader.ColumnReader`.
        on_bad_input: str. "stop" or "skip": what to do with a row that cannot be used.

    Raises:
        UsageError: If the delimiter is not one character.
        DataError: If the file cannot be read or is malformed; the message names the
            line.
    """
    wanted = [text_column, text_pair_column, label_column, id_column]
    names = [None if name in (None, "") else str(name) for name in wanted]
    columns = read_columns(
        path,
        [name for name in names if name is not None],
        delimiter=delimiter,
        header=header,
        quoting=quoting,
        short_rows=short_rows,
        on_bad_input=on_bad_input,
    )
    if label_column and columns.index[names[2]] in [
        columns.index[name] for name in names[:2] if name is not None
    ]:
        raise DataError(
            f"{columns.path}: expected a label beside the text, received one column "
            f"for both, {columns.names[columns.index[names[2]]]!r}"
        )
    values = [None if name is None else columns.values[name] for name in names]
    return make_table(
        columns,
        *values,
        label_separator=label_separator,
        skip_label=skip_label,
        on_bad_input=on_bad_input,
    )


def make_table(
    columns: Columns,
    texts: list,
    text_pairs: list | None = None,
    labels: list | None = None,
    ids: list | None = None,
    *,
    label_separator: str | None = None,
    skip_label: str | None = None,
    on_bad_input: str = "stop",
    seen: dict[str, int] | None = None,
) -> TextTable:
    """Makes a table of columns that were read; see `read_table`.

    Args:
        columns: `Columns`. Where the rows are, for messages.
        texts: list. Values of the column; so are the next three, if not None.
        text_pairs: list or None.
        labels: list or None.
        ids: list or None.
        label_separator: str or None.
        skip_label: str or None.
        on_bad_input: str.
        seen: dict or None. Lines of ids that must not come again; grows.

    Raises:
        DataError: If a row cannot be used, or none is left.
    """
    bad = BadRows(on_bad_input)
    bad.counts.update(columns.skipped)
    if labels is not None:
        labels = _label_values(labels, label_separator)
        skip_label = skip_label or _unlabelled_mark(labels)
    seen = {} if seen is None else seen
    kept = []
    for row in range(len(columns)):
        problem = _row_problem(row, texts, text_pairs, labels, ids, seen)
        if problem:
            bad.report("rows that cannot be used", f"{columns.where(row)}: {problem}")
        elif labels is not None and skip_label and labels[row] == skip_label:
            bad.counts[f"rows labelled {skip_label!r}"] += 1
        else:
            kept.append(row)
            if ids is not None:
                seen[ids[row]] = columns.lines[row]
    if not kept:
        raise DataError(f"{columns.path}: no row is left ({list_counts(bad.counts)})")
    warn_of_skipped(columns.path, bad.counts)
    values = (texts, text_pairs, labels, columns.lines, ids)
    chosen = [None if v is None else [v[row] for row in kept] for v in values]
    return TextTable(columns.path, *chosen, columns.unit, dict(bad.counts))


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


def _row_problem(row, texts, text_pairs, labels, ids, seen) -> str:
    """Returns why a row cannot be used, or an empty string."""
    for name, column in (("text", texts), ("second text", text_pairs), ("id", ids)):
        if column is not None and not isinstance(column[row], str):
            found = "none" if column[row] is None else "a list"
            return f"expected a {name}, received {found}"
    if ids is not None:
        if not ids[row]:
            return "the id is empty"
        if ids[row] in seen:
            return f"the id {ids[row]!r} occurs before, in {seen[ids[row]]}"
    label = labels[row] if labels is not None else ""
    if not isinstance(label, str) and not all(isinstance(part, str) for part in label):
        return "expected a list of label names, received a list of other things"
    return ""
