"""Reads text columns of Parquet files and TFDS data sets, one document per row."""

import difflib
from collections.abc import Callable, Iterable, Iterator

from albert_tf.data.corpus.source import BadInput
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

_BATCH = 256


def read_parquet(
    path: str,
    text_field: str,
    bad: BadInput,
    on_bytes: Callable[[bytes], None] | None = None,
) -> Iterator[str]:
    """Yields the strings of one column of a Parquet file.

    Raises:
        UsageError: If pyarrow is not installed.
        DataError: If the file is damaged or has no such column of strings.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"{path}: reading parquet needs pyarrow: pip install albert_tf[parquet]"
        ) from error
    try:
        with files.open_binary(path) as file:
            while on_bytes and (data := file.read(1 << 20)):
                on_bytes(data)
            if on_bytes:
                on_bytes(b"")
            file.seek(0)
            table = parquet.ParquetFile(file)
            if text_field not in table.schema_arrow.names:
                names = table.schema_arrow.names
                raise DataError(
                    f"{path}: has no column {text_field!r} (--text_field), "
                    f"its columns are {', '.join(names)}"
                    f"{_suggestion(text_field, names)}"
                )
            for batch in table.iter_batches(_BATCH, columns=[text_field]):
                for value in batch.column(0).to_pylist():
                    if isinstance(value, str):
                        yield value
                    else:
                        bad.report(
                            "rows_without_text",
                            f"{path}: column {text_field!r} must contain strings, "
                            f"received {value!r}",
                        )
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def read_tfds(
    name: str,
    text_field: str,
    bad: BadInput,
    on_bytes: Callable[[bytes], None] | None = None,
) -> Iterator[str]:
    """Yields the texts of the training split of a TFDS data set, in stored order.

    Args:
        name: str. For example `tfds:wikipedia/20230601.en`. Read from the TFDS data
            folder (`TFDS_DATA_DIR`), and downloaded to it if missing.
        text_field: str. Name of the feature with the text.
        bad: `BadInput`. What to do with rows that cannot be used.
        on_bytes: Not used: the data set has no single file to digest.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UsageError(
            f"{name}: reading TFDS sets needs tensorflow-datasets: "
            "pip install tensorflow-datasets"
        ) from error
    try:
        data = tfds.load(
            name.removeprefix("tfds:"),
            split="train",
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
    except Exception as error:  # TFDS raises many kinds, also from its downloads
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{name}: cannot be loaded: {reason}") from error
    if text_field not in data.element_spec:
        raise DataError(
            f"{name}: has no feature {text_field!r} (--text_field), "
            f"its features are {', '.join(sorted(data.element_spec))}"
            f"{_suggestion(text_field, data.element_spec)}"
        )
    for row in data.as_numpy_iterator():
        try:
            yield row[text_field].decode()
        except UnicodeDecodeError as error:
            bad.report("rows_not_utf8", f"{name}: a text is not UTF-8: {error}")


def _suggestion(wanted: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(wanted, list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
