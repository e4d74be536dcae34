"""Reads texts from files, as blocks of neighbouring rows."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import digests, files, streams
from albert_tf.tables.reader import read_columns
from albert_tf.tables.text_stream import TextStream


class Source(NamedTuple):
    """A file of texts, with what tells whether it has changed."""

    path: str
    size: int
    modified: int | str


class Reading(NamedTuple):
    """How the rows of all files are read.

    Attributes:
        columns: Mapping. Column by input of the model.
        ranks: Mapping. Rank of the tensor by input: 1 for a text per row, 2 for a list.
        copied: Sequence. Columns that are copied to the answers.
        block_size: int. Maximum number of rows in a block.
    """

    columns: Mapping[str, str]
    ranks: Mapping[str, int]
    copied: Sequence[str]
    block_size: int


def find_sources(inputs: str) -> list[Source]:
    """Returns the files that `input_file` names, in its order; globs are sorted.

    Raises:
        DataError: If a file is missing.
        UsageError: If no file is named.
    """
    paths: dict[str, None] = {}
    for part in filter(None, map(str.strip, inputs.split(","))):
        found = [path for path in streams.glob(part) if not files.is_folder(path)]
        if not found:
            raise DataError(f"input_file: {part}: no such file")
        paths |= dict.fromkeys(found)
    if not paths:
        raise UsageError(f"input_file: must name a file, received {inputs!r}")
    return [Source(p, streams.size(p), _version(p)) for p in paths]


def _version(path: str) -> int | str:
    """Returns when a file was modified; its digest where no time is kept."""
    return streams.modified(path) or str(digests.of_file(path)["sha256"])


def is_plain_text(path: str) -> bool:
    """Returns whether a file has a text per line instead of columns."""
    return path.lower().removesuffix(".gz").endswith(".txt")


def read_blocks(path: str, reading: Reading) -> list[dict[str, Any]]:
    """Returns the rows of a file in blocks: lists of values by input and by column.

    Raises:
        DataError: If the file cannot be read, or a value is not a text; the message
            names the line.
    """
    if is_plain_text(path):
        lines = [line for _, line in TextStream(path).lines()]
        (name,) = reading.columns
        inputs, copied, number = {name: lines}, {}, len(lines)
    else:
        wanted = list(dict.fromkeys([*reading.columns.values(), *reading.copied]))
        exact = set(reading.copied) - set(reading.columns.values())
        table = read_columns(path, wanted, exact=exact)
        inputs = {
            name: _checked(table, column, reading.ranks[name])
            for name, column in reading.columns.items()
        }
        copied = {column: table.values[column] for column in reading.copied}
        number = len(table)
    size = reading.block_size
    return [
        {
            "rows": min(size, number - begin),
            "inputs": {k: v[begin : begin + size] for k, v in inputs.items()},
            "copied": {k: v[begin : begin + size] for k, v in copied.items()},
        }
        for begin in range(0, number, size)
    ]


def _checked(table, column: str, rank: int) -> list:
    """Returns the values of a column if all are texts, or lists of texts."""
    for row, value in enumerate(table.values[column]):
        if rank == 1:
            fits, expected = isinstance(value, str), "a text"
        else:
            fits = isinstance(value, list) and all(isinstance(x, str) for x in value)
            expected = "a list of texts"
        if not fits:
            raise DataError(
                f"{table.where(row)}: column {column!r}: expected {expected}, received "
                f"{json.dumps(value)[:80]}"
            )
    return table.values[column]


def check_readable(sources: Sequence[Source], reading: Reading) -> None:
    """Raises UsageError if a file of lines cannot give what the model takes."""
    for source in sources:
        if is_plain_text(source.path):
            name = os.path.basename(source.path)
            if len(reading.columns) > 1 or 2 in reading.ranks.values():
                raise UsageError(
                    f"input_file: {name} has one text per line, but the signature "
                    f"takes {', '.join(reading.columns)}; use .jsonl, .parquet, .csv "
                    "or .tsv"
                )
            if reading.copied:
                raise UsageError(
                    f"copy_columns: {name} has no columns, received "
                    f"{', '.join(reading.copied)}"
                )
