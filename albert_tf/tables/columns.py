"""Columns of a file of rows: their names, their values, and rows that are left out."""

import dataclasses
import difflib
import os
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.wording import list_counts

ON_BAD_INPUT = ("stop", "skip")
# Stops, too, where every row is needed: the message does not suggest to skip it.
REFUSE = "refuse"
# What Hugging Face's sets call a column, where it does not have its usual name.
_OTHER_NAMES = {"tags": "ner_tags"}
_ENDINGS = {
    "json": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "tabs": (".tsv", ".tab"),
    "lines": (".txt",),
}
_KINDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns of a file, or of a portion of its rows.

    Attributes:
        path: str. The file, for error messages.
        names: tuple of str. All columns of the file; numbers from "0" if the file does
            not name them.
        values: dict. By column as it was requested, the values of all rows. A value is
            a str, or from JSON and Parquet also a (nested) list of them. Numbers are
            spelled as in JSON; None is a null or a field that the row does not have.
        lines: list of int. Where each row ends in the file, counted from 1; of a folder
            the names of the files.
        unit: str. What `lines` counts: "line", "row", or "file".
        skipped: dict. Number of rows left out or filled, by reason.
        index: dict. By column as it was requested, its index.
    """

    path: str
    names: tuple[str, ...]
    values: Mapping[str, list]
    lines: list[int]
    unit: str = "line"
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    index: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """Returns file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


class BadRows:
    """Raises an error for a row that cannot be used, or counts it.

    Args:
        action: str. "stop", "skip" or `REFUSE`.
        counts: Counter or None. Where they are counted, by reason.

    Attributes:
        first: str. The message about the first one that was counted.
    """

    def __init__(self, action: str, counts: Counter[str] | None = None):
        rule = f"on_bad_input must be one of {', '.join(ON_BAD_INPUT)}"
        require(action in (*ON_BAD_INPUT, REFUSE), rule, action)
        self.action = action
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.first = ""

    def report(self, reason: str, message: str) -> None:
        """Raises `DataError(message)`, or counts `reason`."""
        if self.action != "skip":
            hint = " (--on_bad_input=skip leaves it out)"
            raise DataError(message + hint * (self.action == "stop"))
        self.counts[reason] += 1
        self.first = self.first or message

    def usable(
        self,
        reason: str,
        rows: Iterable[Any],
        make: Callable[[Any], Any],
        where: Callable[[Any], str],
    ) -> Iterator[Any]:
        """Yields what becomes of the rows that can be used, and reports the others.

        Args:
            reason: str. As what they are counted.
            rows: iterable.
            make: callable. Takes a row and returns what becomes of it; raises a
                `DataError` that says what is wrong with it.
            where: callable. Takes a row and returns its place, for the message.
        """
        for row in rows:
            try:
                made = make(row)
            except DataError as e:
                self.report(reason, f"{where(row)}: {e}")
            else:
                yield made


class Ids:
    """The ids of a file, none of which may come twice.

    A million are compared: all ids of a very large file would need too much memory.
    """

    def __init__(self):
        self._places: dict[str, Any] = {}

    def add(self, name: str, place: Any) -> None:
        """Remembers an id, or raises a `DataError` if it is known already.

        Args:
            name: str. The id.
            place: Where it is in the file, for the message about the next one.
        """
        if name in self._places:
            known = self._places[name]
            raise DataError(f"the id {name!r:.80} is already that of {known}")
        if len(self._places) >= 1_000_000:
            self._places.clear()
        self._places[name] = place


def expect(value: Any, kind: type, name: str = "") -> Any:
    """Returns a value of a row, which must be of this very type.

    Args:
        value: Text, a list, or anything else that JSON knows.
        kind: type. `str`, `int`, `bool`, `list` or `dict`.
        name: str. What it is called, for the message.

    Raises:
        DataError: If it is of another type; does not say in which row it is.
    """
    # `isinstance` would take true for a number.
    if type(value) is not kind:
        name = name and f"{name}: "
        raise DataError(f"{name}expected {_KINDS[kind]}, received {shown(value)}")
    return value


def expect_texts(value: Any, name: str) -> list[str]:
    """Returns a value that must be a list of text; see `expect`."""
    for i, item in enumerate(expect(value, list, name)):
        if type(item) is not str:
            expect(item, str, f"{name}[{i}]")
    return value


def shown(value: Any) -> str:
    """Returns a value as it is shown in messages: on one line, not too long."""
    return "nothing" if value is None else f"{reprlib.repr(value):.80}"


def warn_of_skipped(path: str, counts: Mapping[str, int], first: str = "") -> None:
    """Says how many rows of a file were left out or filled, if any were, and why."""
    if counts:
        first = first and f"; the first one: {first}"
        logging.warning("%s: %s%s", path, list_counts(counts), first)


def file_format(path: str | os.PathLike) -> str:
    """Returns "json", "parquet", "tabs", "lines" or "commas", by the name's ending."""
    name = os.fspath(path).lower().removesuffix(".gz")
    for kind, endings in _ENDINGS.items():
        if name.endswith(endings):
            return kind
    return "commas"


def usual_name(wanted: str, names: Collection[str]) -> str:
    """Returns the name that a column has in a file; `wanted` if it is not there."""
    other = _OTHER_NAMES.get(wanted)
    return other if wanted not in names and other in names else wanted


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Returns a hint to a similar name, or an empty string."""
    close = difflib.get_close_matches(wanted, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def find_column(
    path: str, wanted: str, names: Sequence[str], header: bool = True
) -> int:
    """Returns the index of a column that is given by name or number.

    Raises:
        DataError: If there is no such column, or there are several.
    """
    if header and (other := usual_name(wanted, names)) != wanted:
        logging.info("%s: its column %s is read as %s", path, other, wanted)
        wanted = other
    if header and wanted in names:
        rule = f"{path}: line 1: several columns are named {wanted!r}"
        require(names.count(wanted) == 1, rule, error=DataError)
        return names.index(wanted)
    digits = wanted.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 9:
        number = int(wanted)
        if -len(names) <= number < len(names):
            return number % len(names)
    if not header:
        rule = f"a number from 0 to {len(names) - 1} (without a header)"
    else:
        rule = f"one of {', '.join(names)}"
        if hint := did_you_mean(wanted, names):
            rule += hint
        elif file_format(path) in ("json", "parquet"):
            pass
        elif len(names) == 1:
            rule += " (--delimiter sets another separator)"
        else:
            rule += " (--noheader reads a table without names, by column numbers)"
    if wanted == "label":
        rule += "; --label_column names another, --label_columns=A,B,... those with "
        rule += "0 or 1 for each label"
    rule = rule if len(rule) <= 400 else f"{rule[:400]} ..."
    raise DataError(f"{path}: no column {wanted!r}; expected {rule}")
