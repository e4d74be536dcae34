"""Reads the JSON objects of a file: one per line, or a list of them."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from albert_tf.errors import DataError
from albert_tf.tables.text_stream import TextStream, numbered_lines

Report = Callable[[str, str], None]


def read_objects(
    stream: TextStream, report: Report
) -> tuple[str, Iterator[tuple[int, dict[str, Any]]]]:
    """Returns what rows are counted by, "line" or "row", and the numbered objects.

    A list is read whole, lines one after the other.

    Args:
        stream: `TextStream`. The file.
        report: callable. Told the reason and the message for every row that is none.

    Raises:
        DataError: If the file cannot be read, or is a list that is not JSON.
    """
    pieces = stream.pieces()
    first = next(pieces, "")
    pieces = itertools.chain([first], pieces)
    if first.lstrip()[:1] == "[":
        items = _list(stream.path, "".join(pieces))
        return "row", _objects(f"{stream.path}: row", items, report)
    return "line", _objects(f"{stream.path}: line", _lines(pieces), report)


def _objects(
    where: str, items: Iterable[tuple[int, Any]], report: Report
) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, item in items:
        if isinstance(item, Exception):
            report("rows that are not JSON", f"{where} {number}: not JSON: {item}")
        elif not isinstance(item, dict):
            report(
                "rows that are not objects",
                f"{where} {number}: expected a JSON object, received "
                f"{type(item).__name__}",
            )
        else:
            yield number, item


def _list(path: str, text: str) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(json.loads(text), 1)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: not JSON: {e}") from None


def _lines(pieces: Iterable[str]) -> Iterator[tuple[int, Any]]:
    for number, line in numbered_lines(pieces):
        if line.strip():
            try:
                item = json.loads(line)
            except (ValueError, RecursionError) as e:
                item = e
            yield number, item
