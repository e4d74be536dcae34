"""Reads rows of formats with types: JSON, JSON Lines and Parquet, also gzipped."""

import contextlib
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.tables.columns import BadRow, BadRows
from albert_tf.tables.text_stream import TextStream, split_lines, used_row

_HALF = re.compile("[\ud800-\udfff]")


def json_objects(
    text: TextStream, bad: BadRows
) -> tuple[str, Iterator[tuple[int, Any]]]:
    """Reads one object per line, or one list; returns their unit, and numbered ones."""
    pieces = text.pieces()
    first = next(pieces, "")
    pieces = itertools.chain([first], pieces)
    if first.lstrip()[:1] == "[":
        unit, items = "row", _json_list(text.path, "".join(pieces))
    else:
        unit, items = "line", _json_lines(pieces, bad)
    return unit, _objects(text.path, unit, items, bad)


def _objects(
    path: str, unit: str, items: Iterable[tuple[int, Any]], bad: BadRows
) -> Iterator[tuple[int, Any]]:
    """Yields the items that are objects, and reports the others."""
    for number, item in items:
        if not isinstance(item, dict | BadRow):
            reason = "rows that are not objects"
            fault = f"expected a JSON object, received {type(item).__name__}"
            if isinstance(item, Exception):
                reason, fault = "rows that are not JSON", f"not JSON: {item}"
            item = bad.stand_in(reason, f"{path}: {unit} {number}: {fault}")
        if item is not None:
            yield number, item


def _json_lines(pieces: Iterable[str], bad: BadRows) -> Iterator[tuple[int, Any]]:
    """Yields the parsed values of non-blank lines, or the parsing errors."""
    for number, line in enumerate(split_lines(pieces), 1):
        if item := used_row(line, [line], not line.strip(), bad):
            try:
                item = json.loads(line) if item is line else item
            except (ValueError, RecursionError) as e:
                item = e
            yield number, item


def _json_list(path: str, text: str) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(json.loads(text), 1)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: not JSON: {e}") from None


@contextlib.contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file, which may be gzipped, as pyarrow's `ParquetFile`.

    Raises `UsageError` if pyarrow is not installed, and `DataError` if the file cannot
    be read, also inside the block.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"{path}: reading parquet needs pyarrow: pip install albert_tf[parquet]"
        ) from None
    with _seekable(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except DataError:
            raise
        except (OSError, ValueError, pa.ArrowException) as e:
            reason = " ".join(str(e).split())[:200]
            raise DataError(f"{path}: cannot be read as Parquet: {reason}") from None


def _seekable(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if path.lower().endswith(".gz"):
        return io.BytesIO(b"".join(TextStream(path).blocks()))
    return files.reading(path)


def parquet_rows(
    table: Any, columns: Sequence[str], size: int
) -> Iterator[tuple[int, Sequence]]:
    """Yields (number, values of the columns) of each row, reading `size` at once."""
    done = 0
    for batch in table.iter_batches(size, columns=list(dict.fromkeys(columns))):
        values = [_python_values(batch.column(name)) for name in columns]
        rows = zip(*values, strict=True) if columns else [()] * len(batch)
        yield from enumerate(rows, done + 1)
        done += len(batch)


def _python_values(column: Any) -> list:
    """Returns the values of an Arrow column, with bytes in place of invalid UTF-8."""
    # `_plain` raises an error for these bytes, and `plain_rows` adds the row.
    try:
        return column.to_pylist()
    except UnicodeDecodeError as e:
        if len(column) == 1:
            return [e.object]
        single = (column[i : i + 1] for i in range(len(column)))
        return [value for one in single for value in _python_values(one)]


def plain_rows(
    where: str, rows: Iterable[tuple[int, Iterable]], bad: BadRows, exact: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yields rows of strings, lists and None; reports rows with other values.

    `where` precedes the number of a row in messages. If `exact`, numbers and truth
    values keep their type.
    """
    for number, row in rows:
        try:
            values = [_plain(x, bad.counts, exact) for x in row]
        except (ValueError, RecursionError) as e:
            reason = str(e) if isinstance(e, ValueError) else "nested too deeply"
            reason = f"{where} {number}: {reason}"
            values = bad.stand_in("rows of other values", reason)
        if values is not None:
            yield number, values


def whole_characters(text: str, counts: Counter[str]) -> str:
    """Returns text with spaces in place of lone surrogates, which JSON can contain."""
    if not text.isascii():
        text, halves = _HALF.subn(" ", text)
        if halves:
            counts["surrogates_replaced"] += halves
    return text


def _plain(value: Any, counts: Counter[str], exact: bool) -> Any:
    """Returns a str, list or None (also for NaN); if `exact`, also a bool or number."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("expected text, received a NUL character")
        return whole_characters(value, counts)
    if value is None or isinstance(value, BadRow) or (exact and isinstance(value, int)):
        return value
    if isinstance(value, float) and (exact or not math.isfinite(value)):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item, counts, exact) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        raise ValueError(f"expected text, a number or a list, received {value!r:.80}")
    return str(value)
