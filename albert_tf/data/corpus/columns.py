"""Reads text columns of tables and TFDS data sets, one document per row."""

import difflib
from collections.abc import Callable, Iterator

from albert_tf.data.corpus.source import Source
from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables import tfds_source
from albert_tf.tables.columns import BadRows
from albert_tf.tables.reader import ColumnReader

_BATCH = 256


def read_table(
    source: Source, settings, bad: BadRows, on_bytes: Callable[[bytes], None]
) -> Iterator[str]:
    """Yields the strings of one column of a CSV, TSV or Parquet file.

    Args:
        source: `Source`. The file.
        settings: `CorpusSettings`.
        bad: `BadRows`. What to do with rows that cannot be used.
        on_bytes: callable. See `source.open_source`.

    Raises:
        UsageError: If pyarrow is needed and not installed.
        DataError: If the file is damaged or has no such column.
    """
    path, column = source.name, settings.text_field
    try:
        with files.open_binary(path) as file:
            while data := file.read(1 << 20):
                on_bytes(data)
            on_bytes(b"")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    kind = "parquet" if source.format == "parquet" else None
    stream = ColumnReader(path, [column], **settings.layout, bad=bad, kind=kind)
    for rows in stream.portions(_BATCH):
        for number, value in enumerate(rows.values[column]):
            if isinstance(value, str):
                yield value
            else:
                bad.report(
                    "rows_without_text",
                    f"{rows.where(number)}: column {column!r} (--text_column) must "
                    f"contain strings, received {value!r}",
                )


def read_tfds(source: Source, settings, bad: BadRows) -> Iterator[str]:
    """Yields the texts of the training split of a TFDS data set, in stored order.

    Args:
        source: `Source`. Its name is, for example, `tfds:wikipedia/20230601.en`.
        settings: `CorpusSettings`.
        bad: `BadRows`. What to do with rows that cannot be used.

    Raises:
        DataError: If the set is not prepared, or has no such feature.
    """
    name, field = source.name, settings.text_field
    path = tfds_source.prepared_folder(name, settings.tfds_data_dir, False)
    with tfds_source.opened(name, path, "train") as (_, rows):
        for row in rows:
            if field not in row:
                close = difflib.get_close_matches(field, list(row), 1)
                raise DataError(
                    f"{name}: has no feature {field!r} (--text_column), its features "
                    f"are {', '.join(sorted(row))}"
                    f"{f'; did you mean {close[0]!r}?' if close else ''}"
                )
            try:
                yield row[field].decode()
            except UnicodeDecodeError as error:
                bad.report("rows_not_utf8", f"{name}: a text is not UTF-8: {error}")
