"""Joins parts to the file that the user named, in the format of its name.

The content of a part is text, bytes of vectors, or for Parquet a table in Arrow's
stream format.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from albert_tf.errors import UsageError
from albert_tf.jobs.folder import Part
from albert_tf.storage import files

# Gives the parts of an output in order, every time it is called.
Parts = Callable[[], Iterator[Part]]
_NUMBER = re.compile(rb'^\{"index": (\d+)', re.MULTILINE)


def write_text(path: str, parts: Parts) -> None:
    """Writes parts of text one after the other."""
    with files.open_atomically(path) as file:
        for part in parts():
            file.write(part.content)


def write_json_lines(path: str, parts: Parts) -> None:
    """Writes JSON lines that begin with an index.

    `about["numbered"]` of a part says whether its indices are numbers. They are written
    as names if those of another part are names.
    """
    kinds = {part.about["numbered"] for part in parts()}
    with files.open_atomically(path) as file:
        for part in parts():
            content = part.content
            if len(kinds) > 1 and part.about["numbered"]:
                content = _NUMBER.sub(rb'{"index": "\1"', content)
            file.write(content)


def write_vectors(path: str, parts: Parts) -> None:
    """Writes an array `[rows, width]` of float32 in NumPy's format."""
    abouts = [part.about for part in parts()]
    shape = (sum(one["rows"] for one in abouts), abouts[0]["width"])
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with files.open_atomically(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts():
            file.write(part.content)


def write_parquet(path: str, parts: Parts) -> None:
    """Writes a Parquet file with a row group for every part."""
    pa, parquet = import_parquet(path)
    with files.open_atomically(path) as file, contextlib.ExitStack() as stack:
        writer = None
        for part in parts():
            table = pa.ipc.open_stream(part.content).read_all()
            if writer is None:
                writer = parquet.ParquetWriter(_Sink(file), table.schema)
                stack.callback(writer.close)
            writer.write_table(table)


def table_content(columns: Mapping[str, Any]) -> bytes:
    """Returns columns as the content of a part of a Parquet file.

    Args:
        columns: dict. Arrays of Arrow by name.
    """
    import pyarrow as pa

    table = pa.table(dict(columns))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def index_column(ids: Sequence[str], named: bool) -> Any:
    """Returns the column of the rows' names, or of their numbers, for Parquet."""
    import pyarrow as pa

    if named:
        return pa.array(ids, pa.string())
    return pa.array(map(int, ids), pa.int64())


def import_parquet(path: str) -> tuple[Any, Any]:
    """Returns pyarrow and its module for Parquet.

    Raises:
        UsageError: If it is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"output_file: {path}: writing parquet needs pyarrow: "
            "pip install albert_tf[parquet]"
        ) from None
    return pa, parquet


class _Sink(io.RawIOBase):
    """What pyarrow can write to, over a file that can only be appended to."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._file.write(bytes(data))
        return len(data)
