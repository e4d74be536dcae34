"""Settings shared by the commands that read tables or prepared data sets."""

import dataclasses

from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutSettings:
    """The form of the cells of a table.

    Attributes:
        delimiter: Character between cells. Default: tab for .tsv, none for .txt (one
            text per line), comma otherwise.
        header: Whether the first line names the columns.
        quoting: Whether double quotes enclose cells, as in CSV; false for GLUE's files.
    """

    group = "inputs"

    delimiter: str = ""
    header: bool = True
    quoting: bool = True

    @property
    def layout(self) -> dict:
        """Arguments of `cells.CellReader`."""
        return {
            "delimiter": self.delimiter.replace("\\t", "\t") or None,
            "header": self.header,
            "quoting": self.quoting,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSettings(LayoutSettings):
    """A table whose rows may have names.

    Attributes:
        id_column: Name or number of a column that names the rows, for files of
            predictions. Default: rows are numbered from 0.
    """

    id_column: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSettings(ColumnSettings):
    """A table whose rows have labels.

    Attributes:
        label_column: Name or number of the label's column: the class, the score, or the
            number (or letter) of the right choice.
    """

    label_column: str = setting("label", common=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """The place of prepared sets, and the treatment of unusable input.

    Attributes:
        tfds_data_dir: Folder of the prepared TensorFlow Datasets. Default: theirs.
        download: Let TensorFlow Datasets download a set that is not prepared.
        on_bad_input: stop at input that cannot be used, or skip and count it (predict:
            and leave its answer empty).
    """

    group = "inputs"

    tfds_data_dir: str = setting("", identity="data")
    download: bool = setting(False, identity="data")
    on_bad_input: str = setting(
        "stop", common=True, choices=("stop", "skip"), aliases={"error": "stop"}
    )
