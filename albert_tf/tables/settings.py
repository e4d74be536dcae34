"""Settings that every command has that reads tables or prepared data sets."""

import dataclasses

from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutSettings:
    """How the cells of a table are written."""

    delimiter: str = setting(
        "Character between cells. Default: tab for .tsv, comma otherwise.", ""
    )
    header: bool = setting("Whether the first line names the columns.", True)
    quoting: bool = setting(
        "Whether double quotes enclose cells, as in CSV; false for GLUE's files.", True
    )

    @property
    def layout(self) -> dict:
        """Arguments of `reader.ColumnReader`."""
        return {
            "delimiter": self.delimiter or None,
            "header": self.header,
            "quoting": self.quoting,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSettings(LayoutSettings):
    """A table whose rows may have names."""

    id_column: str = setting(
        "Name or number of a column that names the rows, for files of predictions. "
        "Default: rows are numbered from 0.",
        "",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSettings(ColumnSettings):
    """A table whose rows have labels."""

    label_column: str = setting(
        "Name or number of the label's column: the class, the score, or the number (or "
        "letter) of the right choice.",
        "label",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """Where prepared sets are, and what to do with input that cannot be used."""

    tfds_data_dir: str = setting(
        "Folder of the prepared TensorFlow Datasets. Default: theirs.",
        "",
        identity="data",
    )
    download: bool = setting(
        "Let TensorFlow Datasets download a set that is not prepared.",
        False,
        identity="data",
    )
    on_bad_input: str = setting(
        "stop at input that cannot be used, or skip and count it.",
        "stop",
        choices=("stop", "skip"),
        aliases={"error": "stop"},
    )
