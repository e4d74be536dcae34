"""Tables of texts and labels, for classification and regression.

`TableSettings` describes the columns, once for all commands.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError
from albert_tf.settings import setting
from albert_tf.tables.columns import Columns
from albert_tf.tables.settings import ColumnSettings, LabelSettings
from albert_tf.tables.tfds_source import TfdsRows, read_tfds
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL, FileSource
from albert_tf.tasks.texts.text_table import TableReader, TextTable, make_table

# The score of all rows of a split of STS-B whose scores TFDS does not know.
_NO_SCORE = "-1.0"

# Value of `problem_type`: the labels of the training table decide.
AUTO = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFileSettings(ColumnSettings):
    """Where the texts are in a file, and how the file is written."""

    text_column: str = setting(
        "Name or index (from 0; -1 is the last) of the text's column.", "text"
    )

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Columns of the texts, second texts, labels and ids; "" for none."""
        return (self.text_column, "", "", self.id_column)

    def stream(self, path: str | os.PathLike) -> TableReader:
        """Returns the table in a file, to be read in portions; its start is checked."""
        reader = TableReader(path, self)
        reader.check()
        return reader

    def read_table(self, path: str | os.PathLike, **options) -> TextTable:
        """Returns the table in a file; see `TableReader`."""
        return next(TableReader(path, self, **options).portions())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(TextFileSettings):
    """Where texts and pairs are in a table, and how the table is written."""

    text_pair_column: str = setting(
        "Name or index of the second text's column, for pairs of texts.", ""
    )

    @property
    def columns(self) -> tuple[str, str, str, str]:
        return (self.text_column, self.text_pair_column, "", self.id_column)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTableSettings(TableSettings, LabelSettings):
    """Where the texts and the labels are in a table, and what the labels are."""

    label_separator: str = setting(
        "Text between the labels of a row, for several labels per row. Lists of labels "
        "in JSON and Parquet need none.",
        "",
    )
    skip_label: str = setting(
        "Rows with this label are left out and counted. Default: - where all other "
        "labels are those of natural language inference, unsup next to neg and pos.",
        "",
    )
    problem_type: str = setting(
        "What the labels are. auto: lists are several labels per row, numbers with a "
        "decimal point are scores, anything else is a class.",
        AUTO,
        choices=(AUTO, SINGLE_LABEL, MULTI_LABEL, REGRESSION),
    )

    @property
    def columns(self) -> tuple[str, str, str, str]:
        text, pair, _, name = super().columns
        return (text, pair, self.label_column, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """A table as the source of a task's examples.

    Attributes:
        columns: `TableSettings`.
        short_rows: str. See `TableReader`.
    """

    columns: TableSettings
    short_rows: str = "stop"

    def read_file(self, path: str) -> TextTable:
        """Returns the table in a file."""
        return self.columns.read_table(
            path, short_rows=self.short_rows, on_bad_input=self.on_bad_input
        )


@dataclasses.dataclass(frozen=True)
class TfdsTableSource:
    """A split of a TFDS set as the source of a task's examples.

    Attributes:
        name: str. Such as "tfds:glue/mnli"; see `tfds_source.read_tfds`.
        split: str. Name of the split there.
        columns: `TableSettings`. Names of features. Rows are sorted by `id_column` if
            it holds whole numbers, because TFDS stores them shuffled.
        names: dict. Label of the task by name of the class in the set; empty if they
            are the same.
        data_dir: str or None. See `read_tfds`; so is `download`.
        download: bool.
        on_bad_input: str. See `TableReader`.
    """

    name: str
    split: str
    columns: TableSettings
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    data_dir: str | None = None
    download: bool = False
    on_bad_input: str = "stop"

    def read(self, folder: str = "") -> TextTable:
        """Returns the rows; `folder` is not used.

        The label -1 of TFDS marks rows without a label: such rows are left out and
        counted, unless all rows are like that. A score may be -1, so among scores it
        marks missing labels only if all rows have it.

        Raises:
            UsageError: See `read_tfds`.
            DataError: See `read_tfds`; and if a feature is missing, or the names of the
                classes differ.
        """
        data = read_tfds(self.name, self.split, self.data_dir, self.download)
        text, pair, label, name = self.columns.columns
        rows = self._sorted(data.rows, name)
        wanted = filter(None, (text, pair, label, name))
        values = {key: _feature(data, rows, key) for key in wanted}
        numbers = list(range(len(rows)))
        if label:
            labels = values[label] = self._label_names(data, values[label], label)
            kept = [i for i in numbers if labels[i] is not None]
            if kept:
                numbers = kept
            else:
                del values[label]
        missing = len(rows) - len(numbers)
        skipped = {"rows without a label": missing} if missing else {}
        values = {key: [column[i] for i in numbers] for key, column in values.items()}
        columns = Columns(data.name, (), values, numbers, "row", skipped)
        return make_table(columns, self.columns, self.on_bad_input)

    def _sorted(self, rows: list[dict], key: str) -> list[dict]:
        if key and all(isinstance(row.get(key), int) for row in rows):
            return sorted(rows, key=lambda row: row[key])
        return rows

    def _label_names(self, data: TfdsRows, labels: list, key: str) -> list:
        """Returns labels as written in a table; None for rows without one."""
        classes = data.class_names.get(key)
        if classes and self.names and not set(classes) <= set(self.names):
            raise DataError(
                f"{data.name}: expected the classes {', '.join(self.names)} (in any "
                f"order), received {', '.join(classes)}"
            )

        if classes is None and set(map(str, labels)) == {_NO_SCORE}:
            return [None] * len(labels)

        def name(value):
            if isinstance(value, list):
                return [name(part) for part in value]
            if classes is None:
                return str(value)
            if not 0 <= value < len(classes):
                return None
            return self.names.get(classes[value], classes[value])

        return [name(value) for value in labels]


def _feature(data: TfdsRows, rows: list[dict], key: str) -> list[Any]:
    """Returns the values of a feature; numbers but those of classes as text."""
    if not rows or key not in rows[0]:
        known = ", ".join(rows[0]) if rows else "none"
        raise DataError(f"{data.name}: no feature {key!r}; expected one of {known}")
    values = [row[key] for row in rows]
    if key in data.class_names:
        return values
    return [value if isinstance(value, (str, list)) else str(value) for value in values]


def find_labels(table: TextTable) -> list[str]:
    """Returns the distinct labels, sorted; numerically if all are whole numbers.

    Raises:
        DataError: If a label is empty, or if there are fewer than two labels.
    """
    found = set()
    for row, label in enumerate(table.labels):
        if label == "":
            raise DataError(f"{table.where(row)}: the label is empty")
        found.update([label] if isinstance(label, str) else label)
    labels = sort_labels(found)
    if len(labels) < 2:
        received = f"only {labels[0]!r}" if labels else "none"
        raise DataError(
            f"{table.path}: expected at least 2 different labels, received {received}"
        )
    return labels


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Returns labels in order, which is numerical if all are whole numbers."""
    labels = sorted(labels)
    try:
        return sorted(labels, key=int)
    except ValueError:
        return labels


def unknown_label(label, labels: Sequence[str]) -> str:
    """Says which labels there are instead of one that is not among them."""
    if label == "":
        return "the label is empty"
    known = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
    return f"expected one of the labels {known}, received {label!r:.200}"
