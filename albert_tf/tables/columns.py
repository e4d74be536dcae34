"""Columns of a file of rows: their names, their values, and the skipped rows."""

import dataclasses
import difflib
import os
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, list_counts, require

ON_BAD_INPUT = ("stop", "skip")
# Also stops, but for callers that need every row: the message does not suggest
# skipping it.
REFUSE = "refuse"
# Keeps an unusable row, empty and with the reason, so that answers align with the rows.
BLANK = "blank"
# Column names in Hugging Face's sets that differ from the usual ones.
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
        path: The file, for error messages.
        names: All columns of the file; numbers from "0" if the file does not name them.
        values: Values of all rows, keyed by column as requested. A value is a str; from
            JSON and Parquet it may also be a (nested) list of str. Numbers are spelled
            as in JSON; None is a null or a field missing from the row.
        lines: Last line of each row in the file, counted from 1; for a folder, the file
            names.
        unit: What `lines` counts: "line", "row", or "file".
        skipped: Number of rows skipped or padded, by reason.
        index: Index of each column, keyed by column as requested.
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
        """Returns the file and line of a row, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}"


class BadRow(DataError):
    """The reason why a row cannot be used, in place of the row and of all its cells."""

    def __getitem__(self, column: Any) -> "BadRow":
        return self

    get = __getitem__
    __iter__ = ().__iter__


class BadRows:
    """Raises an error for an unusable row, counts it, or keeps it as an empty row."""

    def __init__(self, action: str, counts: Counter[str] | None = None):
        message = f"on_bad_input must be one of {', '.join(ON_BAD_INPUT)}"
        require(action in (*ON_BAD_INPUT, REFUSE, BLANK), message, action)
        self.action = action
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.first = ""
        self.problems: list[str] = []

    def report(self, reason: str, message: str) -> None:
        """Raises `DataError(message)`, or counts `reason`."""
        if self.action != "skip":
            hint = " (--on_bad_input=skip leaves it out)"
            raise DataError(message + hint * (self.action == "stop"))
        self.counts[reason] += 1
        self.first = self.first or message

    def stand_in(self, reason: str, message: str) -> BadRow | None:
        """Returns a `BadRow` with the message if rows are kept, or reports the row."""
        if self.action == BLANK:
            return BadRow(message)
        return self.report(reason, message)

    def usable(
        self,
        reason: str,
        rows: Iterable[Any],
        make: Callable[[Any], Any],
        where: Callable[[Any], str],
        blank: Callable[[Any], Any] | None = None,
    ) -> Iterator[Any]:
        """Yields `make(row)` for usable rows, and reports the others as `reason`.

        `make` raises a `DataError` that says what is wrong with a row; `where` returns
        the row's place for the message. With `BLANK`, an unusable row stays as
        `blank(row)`, and each yielded row adds to `problems`: a message, or "".
        """
        for row in rows:
            try:
                made, problem = make(row), ""
            except DataError as e:
                problem = str(e) if isinstance(e, BadRow) else f"{where(row)}: {e}"
                if self.action != BLANK:
                    self.report(reason, problem)
                    continue
                made = blank(row)
            if self.action == BLANK:
                self.problems.append(problem)
            yield made


class Ids:
    """The ids of a file, each of which must be unique.

    Only a million ids are compared at a time: all ids of a very large file would need
    too much memory.
    """

    def __init__(self):
        self._places: dict[str, Any] = {}

    def add(self, name: str, place: Any) -> None:
        """Remembers an id and its place; raises `DataError` for a duplicate id."""
        if name in self._places:
            earlier = self._places[name]
            raise DataError(f"the id {name!r:.80} is already used in {earlier}")
        if len(self._places) >= 1_000_000:
            self._places.clear()
        self._places[name] = place


def expect(value: Any, kind: type, name: str = "") -> Any:
    """Returns a value of a row, which must be of exactly this type.

    Raises `DataError` otherwise, with a message that names the value, but not the row.
    """
    # `isinstance` would accept true as a number.
    if type(value) is not kind:
        name = name and f"{name}: "
        error = DataError(f"{name}expected {_KINDS[kind]}, received {shown(value)}")
        raise value if isinstance(value, BadRow) else error
    return value


def expect_texts(value: Any, name: str) -> list[str]:
    """Returns a value that must be a list of strings; see `expect`."""
    for i, item in enumerate(expect(value, list, name)):
        if type(item) is not str:
            expect(item, str, f"{name}[{i}]")
    return value


def shown(value: Any) -> str:
    """Returns a short, single-line form of a value for messages."""
    return "nothing" if value is None else f"{reprlib.repr(value):.80}"


def warn_of_skipped(path: str, counts: Mapping[str, int], first: str = "") -> None:
    """Logs how many rows of a file were skipped or padded, and why, if any were."""
    if counts:
        first = first and f"; the first one: {first}"
        logging.warning("%s: %s%s", path, list_counts(counts), first)


def warn_of_unread(columns: Columns, name: str, flag: str) -> None:
    """Logs that a column of texts with a usual name is not read, if there is one."""
    names, read = columns.names, columns.index.values()
    if name in names and names.index(name) not in read:
        text = "%s: its column %r is not read; --%s=%s reads it"
        logging.warning(text, columns.path, name, flag, name)


def file_format(path: str | os.PathLike) -> str:
    """Returns "json", "parquet", "tabs", "lines" or "commas", by the extension."""
    name = os.fspath(path).lower().removesuffix(".gz")
    for kind, endings in _ENDINGS.items():
        if name.endswith(endings):
            return kind
    return "commas"


def usual_name(wanted: str, names: Collection[str]) -> str:
    """Returns the name of a column in a file; `wanted` if there is no such column."""
    other = _OTHER_NAMES.get(wanted)
    return other if wanted not in names and other in names else wanted


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Returns a hint that suggests a similar name, or an empty string."""
    close = difflib.get_close_matches(wanted, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def find_column(
    path: str, wanted: str, names: Sequence[str], header: bool = True
) -> int:
    """Returns the index of a column given by name or number.

    Raises `DataError` if there is no such column, or several have the name.
    """
    if header and (other := usual_name(wanted, names)) != wanted:
        logging.info("%s: its column %s is read as %s", path, other, wanted)
        wanted = other
    if header and wanted in names:
        message = f"{path}: line 1: several columns are named {wanted!r}"
        require(names.count(wanted) == 1, message, error=DataError)
        return names.index(wanted)
    digits = wanted.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 9
    if is_number and -len(names) <= int(wanted) < len(names):
        return int(wanted) % len(names)
    if not header:
        message = f"a number from 0 to {len(names) - 1} (without a header)"
    else:
        message = f"one of {', '.join(names)}"
        if hint := did_you_mean(wanted, names):
            message += hint
        elif file_format(path) in ("json", "parquet"):
            pass
        elif len(names) == 1:
            message += " (--delimiter sets another separator)"
        else:
            message += " (--noheader reads a table without names, by column numbers)"
    if wanted == "label":
        message += "; --label_column names another, --label_columns=A,B,... those with "
        message += "0 or 1 for each label"
    message = message if len(message) <= 400 else f"{message[:400]} ..."
    raise DataError(f"{path}: no column {wanted!r}; expected {message}")
