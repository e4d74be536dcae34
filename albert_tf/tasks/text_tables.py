"""Tables of texts and labels, in memory and in portions of a file of any size.

`TableSettings` describes the columns, once for all commands.
"""

import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, list_counts, require
from albert_tf.settings import setting
from albert_tf.tables.class_ids import renamed
from albert_tf.tables.column_settings import ColumnSettings, LabelSettings
from albert_tf.tables.columns import (
    BLANK,
    REFUSE,
    BadRows,
    Columns,
    Ids,
    expect,
    expect_texts,
    file_format,
    shown,
    warn_of_skipped,
    warn_of_unread,
)
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.task import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    Examples,
    FileSource,
    Portions,
)

# Marks of a missing label, with the set that all other labels must belong to: SNLI and
# MultiNLI write "-" if the annotators did not agree, IMDb has a folder of unlabelled
# reviews.
_NO_LABEL = {
    "-": {"contradiction", "entailment", "neutral", "not_entailment"},
    "unsup": {"neg", "pos"},
}

# In TFDS: the class of a row without a label, and the score of all rows of a split with
# unknown scores, as in STS-B.
_NO_CLASS, _NO_SCORE = "-1", "-1.0"
# Lists, tuples and sets as pandas and NumPy write them into a cell, and 0 or 1 for each
# of at least three labels. A single name in brackets is accepted as a label.
LIST = re.compile(r"(?s)\s*(\[(.*[,'\"].*|[\d.\s]*)\]|[({].*[,'\"].*[)}])\s*")
_BITS = re.compile(r"\s*[01](?:[\s,;|]+[01]){2,}\s*")
# A whole number with a decimal point. 1.10 may be a code, other than 1.1.
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)\.0*")
# Value of `problem_type`: the labels of the training table decide.
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class TextTable(Examples):
    """The columns of a table.

    Attributes:
        text_pairs: Second texts, or None.
        labels: Labels as written in the file, or None: a str per row, or for several
            labels per row a tuple of str.
        lines: Line of the file where each row ends, counted from 1.
        ids: Name of each row. Default: its index.
        unit: What `lines` counts: "line", or "row".
        groups: Name of the query that each row is a candidate of, or None.
    """

    path: str
    texts: list[str]
    text_pairs: list[str] | None
    labels: list[str] | list[tuple[str, ...]] | None
    lines: list[int]
    ids: list[str] | None = None
    unit: str = "line"
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] | None = None
    groups: list[str] | None = None

    def __post_init__(self):
        if self.ids is None:
            object.__setattr__(self, "ids", [str(i) for i in range(len(self.texts))])

    def where(self, row: int) -> str:
        """Returns the file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFileSettings(ColumnSettings):
    """The columns of texts in a file, and the format of the file.

    Attributes:
        text_column: Name or index (from 0; -1 is the last) of the text's column.
    """

    text_column: str = setting("text", common=True)

    def columns(self, labelled: bool = True) -> tuple[str, ...]:
        """Returns the columns of texts, pairs, labels, ids and groups; "" if absent.

        If there is one column per label, these columns come after the five.
        """
        several = getattr(self, "label_columns", ()) if labelled else ()
        label = "" if several else getattr(self, "label_column", "")
        return (
            self.text_column,
            getattr(self, "text_pair_column", ""),
            label if labelled else "",
            self.id_column,
            getattr(self, "group_column", "") if labelled else "",
            *several,
        )

    def stream(self, path: str | os.PathLike) -> Portions:
        """Returns the texts in a file, to be read in portions; its start is checked."""
        table = open_table(path, self, labelled=False, on_bad_input=REFUSE)
        return table.checked(path)

    def read_table(self, path: str | os.PathLike, **options) -> TextTable:
        """Returns the table in a file; see `open_table`."""
        return open_table(path, self, **options).whole()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(TextFileSettings):
    """The columns of texts and pairs in a table, and the format of the table.

    Attributes:
        text_pair_column: Name or index of the second text's column, for pairs of texts.
    """

    text_pair_column: str = setting("", common=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTableSettings(TableSettings, LabelSettings):
    """The columns of texts and labels in a table, and the kind of the labels.

    Attributes:
        label_columns: Columns of 0 and 1, one for each label, instead of label_column.
        label_separator: Text between the labels of a row, for several labels per row.
            Lists of labels in JSON and Parquet need none.
        skip_label: Rows with this label are left out and counted. Default: - if all
            other labels belong to natural language inference, unsup if they are neg
            and pos.
        group_column: Texts with scores, or with two labels: column that names the query
            of each row. The rows of a query are also evaluated as a ranking, and stay
            together when dev examples are held back.
        problem_type: Kind of the labels. auto: lists are several labels per row,
            numbers with a decimal point are scores, anything else is a class.
    """

    label_columns: tuple[str, ...] = ()
    label_separator: str = ""
    skip_label: str = ""
    group_column: str = ""
    problem_type: str = setting(
        AUTO, choices=(AUTO, SINGLE_LABEL, MULTI_LABEL, REGRESSION)
    )


def open_table(
    path: str | os.PathLike,
    settings: TextFileSettings,
    labelled: bool = True,
    short_rows: str = "stop",
    on_bad_input: str = "stop",
) -> Portions:
    """Returns the table of texts in a file, to be read in portions.

    The labels are not validated here (see `labels`), and not read with `BLANK`, since
    an empty row has none. Errors are raised when reading.
    """
    wanted = settings.columns(labelled and on_bad_input != BLANK)
    reader = ColumnReader(
        path,
        list(dict.fromkeys(filter(None, wanted))),
        short_rows=short_rows,
        bad=BadRows(on_bad_input),
        **settings.layout,
    )

    def portions(rows: int | None) -> Iterator[TextTable]:
        text, pair, label, *_ = wanted
        ids, first = Ids(), 0
        for columns in reader.portions(rows):
            index = columns.index
            if not first and settings.header and label not in columns.names:
                _warn_of_no_header(columns, text, label)
            if not (first or pair) and hasattr(settings, "text_pair_column"):
                warn_of_unread(columns, "text_pair", "text_pair_column")
            if label and index[label] in [index[text], index.get(pair)]:
                raise DataError(
                    f"{columns.path}: expected a label in addition to the text, "
                    f"received one column for both, {columns.names[index[label]]!r}"
                )
            table = _make_table(columns, settings, wanted, on_bad_input, ids, first)
            first += len(table)
            yield table

    return Portions(portions, reader.fraction)


def _warn_of_no_header(columns: Columns, text: str, label: str) -> None:
    """Says that line 1 has names if the texts' column is given by number.

    Warns if the name of a label's column given by number is also one of its labels.
    """
    path, hint = columns.path, "--noheader reads it as a row"
    is_table = columns.unit == "line" and file_format(path) in ("tabs", "commas")
    rule = "%s: line 1 is read as the names of columns, "
    name = columns.names[columns.index[label]] if label in columns.index else ""
    if name in columns.values.get(label, ()):
        logging.warning(f"{rule}but %r is also a label; {hint}", path, name)
    elif is_table and text not in columns.names:
        logging.info(f"{rule}%s; {hint}", path, shown(", ".join(columns.names)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """A table as the source of a task's examples.

    Attributes:
        features: Features of a set of TensorFlow Datasets that correspond to the
            columns; None if the names are the same.
        classes: Label of the task by name of the class in such a set; empty if they are
            the same.
    """

    columns: TableSettings
    short_rows: str = "stop"
    features: TableSettings | None = None
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def open(self, path: str) -> Portions:
        """Returns the table in a file."""
        policy = (self.labelled, self.short_rows, self.on_bad_input)
        return open_table(path, self.columns, *policy)

    def from_rows(self, data: TfdsRows) -> TextTable:
        """Returns the rows of a split of a set of TensorFlow Datasets.

        They are sorted by `id_column` if it holds whole numbers, because TFDS stores
        them shuffled. The label -1 marks rows without a label: such rows are left out
        and counted, unless all rows have it. A score may be -1, so among scores it
        marks missing labels only if all rows have it. Raises `DataError` if a feature
        is missing, or the names of the classes differ.
        """
        settings = self.features or self.columns
        wanted = settings.columns()
        _, _, label, name, *_ = wanted
        rows = data.rows
        if name and all(isinstance(row.get(name), int) for row in rows):
            rows = sorted(rows, key=lambda row: row[name])
        values = {key: _feature(data, rows, key) for key in filter(None, wanted)}
        numbers, skipped = list(range(len(rows))), {}
        if label:
            classes = data.class_names.get(label, ())
            message = (
                f"{data.name}: expected the classes {', '.join(self.classes)} (in any "
                f"order), received {', '.join(classes)}"
            )
            fits = not self.classes or set(classes) <= set(self.classes)
            require(fits, message, error=DataError)
            names = {str(i): self.classes.get(x, x) for i, x in enumerate(classes)}
            # A class may have any name, the id of a missing one too.
            names |= {_NO_CLASS: None} if classes else {}
            labels = values[label] = renamed(values[label], names)
            missing = None if classes else _NO_SCORE
            usable = [i for i in numbers if labels[i] != missing]
            if not usable:
                del values[label]
            elif classes and len(usable) < len(rows):
                skipped = {"rows without a label": len(rows) - len(usable)}
                numbers = usable
        values = {key: [column[i] for i in numbers] for key, column in values.items()}
        columns = Columns(data.name, (), values, numbers, "row", skipped)
        return _make_table(columns, settings, wanted, self.on_bad_input)


def _feature(data: TfdsRows, rows: list[dict], key: str) -> list[Any]:
    """Returns the values of a feature as text or lists of text."""
    if not rows or key not in rows[0]:
        names = ", ".join(rows[0]) if rows else "none"
        raise DataError(f"{data.name}: no feature {key!r}; expected one of {names}")

    def text(value: Any) -> str | list:
        return list(map(text, value)) if isinstance(value, list) else str(value)

    return [text(row[key]) for row in rows]


def _make_table(
    columns: Columns,
    settings: TextFileSettings,
    wanted: tuple[str, ...],
    on_bad_input: str,
    known: Ids | None = None,
    first: int = 0,
) -> TextTable:
    """Makes a table from columns; raises `DataError` if no row of them can be used."""
    bad, known, rows = BadRows(on_bad_input), known or Ids(), range(len(columns))
    bad.counts.update(columns.skipped)
    texts, text_pairs, written, ids, groups = map(columns.values.get, wanted[:5])
    labels, named = None, [name for name in (*wanted[:2], *wanted[3:5]) if name]
    several = wanted[5:]
    if several:
        labels = [()] * len(columns)
    elif written is not None:
        labels = [_label_value(label, settings.label_separator) for label in written]
        if mark := label_key(settings.skip_label) or _unlabelled_mark(labels):
            rows = [row for row in rows if label_key(labels[row]) != mark]
            left_out = len(labels) - len(rows)
            bad.counts.update([f"rows labelled {mark!r}"] * left_out)

    def check(row: int) -> int:
        for name in named:
            expect(columns.values[name][row], str, name)
        if several:
            cells = (columns.values[name][row] for name in several)
            labels[row] = _chosen(several, cells)
        if written is not None and isinstance(written[row], str):
            require(
                not LIST.fullmatch(written[row])
                and (settings.label_separator or not _BITS.fullmatch(written[row])),
                f"{wanted[2]}: expected a label, received a list as text, "
                f"{shown(written[row])}; write lists in .jsonl or .parquet, or divide "
                "labels by a separator, without brackets (--label_separator)",
                error=DataError,
            )
        elif written is not None and isinstance(written[row], list):
            require(
                not any(isinstance(label, list) for label in written[row]),
                f"{wanted[2]}: expected labels, received spans of characters, "
                f"{shown(written[row])}; entities are read from columns of tokens and "
                "tags",
                error=DataError,
            )
            expect_texts(written[row], wanted[2])
        if ids is not None:
            require(ids[row], "the id is empty", error=DataError)
            known.add(ids[row], f"{columns.unit} {columns.lines[row]}")
        empty = f"{wanted[4]}: the group is empty"
        require(groups is None or groups[row].strip(), empty, error=DataError)
        return row

    def blank(row: int) -> int:
        for values in map(columns.values.get, named):
            values[row] = values[row] if isinstance(values[row], str) else ""
        return row

    why = "rows that cannot be used"
    valid = list(bad.usable(why, rows, check, columns.where, blank))
    message = f"{columns.path}: no row is left ({list_counts(bad.counts)})"
    require(valid, message, error=DataError)
    warn_of_skipped(columns.path, bad.counts, bad.first)
    values = (texts, text_pairs, labels, columns.lines, ids, groups)
    chosen = [None if v is None else [v[row] for row in valid] for v in values]
    chosen[4] = chosen[4] or [str(first + i) for i in range(len(valid))]
    about = (columns.unit, dict(bad.counts), bad.problems or None)
    return TextTable(columns.path, *chosen[:5], *about, chosen[5])


def _chosen(names: Sequence[str], cells: Iterable[Any]) -> tuple[str, ...]:
    """Returns the names of the columns with a 1 in a row."""
    values = [label_key(cell) for cell in cells]
    for name, value in zip(names, values, strict=True):
        if value not in ("0", "1", "false", "true"):
            rule = f"label_columns: expected 0 or 1 in {name}, received {shown(value)}"
            raise DataError(f"{rule}; --label_column reads a column of other labels")
    return tuple(n for n, x in zip(names, values, strict=True) if x in ("1", "true"))


def _label_value(label: Any, separator: str) -> str | tuple:
    """Returns a str, or a tuple of str if rows may have several labels."""
    if separator and isinstance(label, str):
        label = [part.strip() for part in label.split(separator)]
    if isinstance(label, list):
        return tuple(label_key(part) for part in label if part != "")
    return _spelled(label or "")


def _spelled(label: Any) -> Any:
    """Returns a label without invisible differences: white space is collapsed, NFC."""
    if not isinstance(label, str):
        return label  # raises an error later, with its row
    label = re.sub("[\u200b\ufeff]", " ", label)  # no width, but not white space
    return unicodedata.normalize("NFC", " ".join(label.split()))


def label_key(label: Any) -> Any:
    """Returns one key for all spellings of a class: 1 and 1.0, true and True.

    Numbers with leading zeros are codes and stay as they are.
    """
    label = _spelled(label)
    if not isinstance(label, str):
        return label
    if _DECIMAL.fullmatch(label):
        return label.rstrip("0").rstrip(".")
    return label.lower() if label.lower() in ("true", "false") else label


def _unlabelled_mark(labels: list) -> str:
    """Returns this table's mark of a missing label, or an empty string."""
    if not all(isinstance(label, str) for label in labels):
        return ""
    names = set(labels)
    for mark, others in _NO_LABEL.items():
        if mark in names and names != {mark} and names <= others | {mark}:
            return mark
    return ""
