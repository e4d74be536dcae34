"""The file `metrics.jsonl`: measurements of a run as JSON lines."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

METRICS_FILE = "metrics.jsonl"
# A pretraining run's answers to masked sentences at its evaluations, in a file of the
# same kind.
SAMPLES_FILE = "samples.jsonl"
# Batches that a run leaves out after divergences.
SKIPPED_FILE = "skipped_batches.json"
# What is drawn about a run, and its answers to the dev examples.
CURVES_FILE, PAGE_FILE, REPORT_FILE = "curves.png", "report.html", "report.json"
REPORT_FILES = (CURVES_FILE, PAGE_FILE, REPORT_FILE)
# The split of a line after a training line that a signal has ended early. It holds the
# initial state of the next one.
UNFINISHED = "unfinished"
# A file in a bucket cannot be appended to. Until the run ends, its new lines are in a
# folder with this suffix, in parts named after the number of lines before them.
PARTS = ".parts"
_LINES_PER_PART = 50


class MetricsFile:
    """Measurements of a run as JSON lines, each with its `step`.

    Args:
        last_step: int. Step at which the run continues. Later lines are removed: they
            belong to steps after the last checkpoint, which will be repeated. A
            training line that a signal has ended early remains until it is replaced
            by the next one, which includes its steps.
    """

    def __init__(self, path: str | os.PathLike, last_step: int):
        self.path = os.fspath(path)
        self.lines = [x for x in read_metrics(self.path) if x["step"] <= last_step]
        self._has_early = len(self.settled()) < len(self.lines)
        self._is_behind = False
        self._write()

    def settled(self) -> list[dict[str, Any]]:
        """Returns the lines without training lines that the next one replaces."""
        return lines_until(self.lines, math.inf)

    def append(self, values: dict[str, Any]) -> None:
        """Adds a line of measurements with their `step`."""
        replaces = self._has_early and values.get("split") == "train"
        if replaces:
            self.lines, self._has_early = self.settled(), False
        self.lines.append(values)
        try:
            if replaces or self._is_behind:
                self._write()
            elif files.is_remote(self.path):
                self._write_part()
            else:
                with open(self.path, "a", encoding="utf-8") as f:
                    f.write(_to_text([values]))
        except (OSError, DataError, UsageError) as e:
            # A run continues without its measurements; all lines are in memory.
            if not self._is_behind:
                logging.warning("%s; it is written again with the next line", e)
            self._is_behind = True
        else:
            self._is_behind = False

    def settle(self) -> None:
        """Joins the parts, and retries writes that failed before."""
        if not (self._is_behind or files.is_remote(self.path)):
            return
        try:
            self._write()
            self._is_behind = False
        except (OSError, DataError, UsageError) as e:
            lost = "the last lines are lost" if self._is_behind else "its parts remain"
            logging.warning("%s; %s", e, lost)

    def _write(self) -> None:
        files.write_text(self.path, _to_text(self.lines))
        files.remove_tree(self.path + PARTS)
        self._joined = len(self.lines)

    def _write_part(self) -> None:
        """Writes the part that the last line belongs to."""
        last = len(self.lines) - 1
        first = last - (last - self._joined) % _LINES_PER_PART
        if first == last:
            files.make_folder(self.path + PARTS)
        path = files.join(self.path + PARTS, _part_name(first))
        files.write_text(path, _to_text(self.lines[first:]))


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the lines of a metrics file, or none if it does not exist.

    An incomplete last line, of a run that was killed, is left out. Raises `DataError`
    if another line is not JSON, or is not an object with a step.
    """
    lines = list(iterate_metrics(path))
    for number, line in enumerate(lines, 1):
        step = line.get("step") if isinstance(line, dict) else None
        if not isinstance(step, int):
            raise DataError(
                f"{path}: line {number} must be an object with a step, received "
                f"{line!r:.80}"
            )
    return lines


def iterate_metrics(path: str | os.PathLike) -> Iterator[Any]:
    """Yields the lines of `read_metrics` one by one, without checking steps."""
    if not files.exists(path):
        return
    lines = files.read_text(path).splitlines()
    folder = f"{os.fspath(path)}{PARTS}"
    for name in files.list_folder(folder) if files.is_folder(folder) else ():
        # Otherwise it was joined to the file by a process killed before removing it.
        if name == _part_name(len(lines)):
            lines += files.read_text(files.join(folder, name)).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            values = files.from_json(line)
        except ValueError:
            if number < len(lines):
                raise DataError(f"{path}: line {number} must be JSON") from None
        else:
            yield _measured(values) if "null" in line else values


def _measured(values: Any) -> Any:
    """Returns a line with NaN for the numbers that JSON cannot represent."""
    if not isinstance(values, dict) or values.get("split") == "skipped":
        return values
    return {n: math.nan if v is None else _measured(v) for n, v in values.items()}


def lines_until(lines: Sequence[Mapping[str, Any]], step: float) -> list[Any]:
    """Returns the lines that are valid for a run that continues from a step.

    Later lines belong to steps after the checkpoint, which will be repeated. The steps
    of a training line that a signal has ended early will be part of the next line.
    """
    earlier = [line for line in lines if line["step"] <= step]
    early = {line["step"] for line in earlier if line.get("split") == UNFINISHED}
    return [x for x in earlier if x.get("split") != "train" or x["step"] not in early]


def _part_name(first: int) -> str:
    return f"{first:09}"


def _to_text(lines: Sequence[Mapping[str, Any]]) -> str:
    return "".join(files.to_json(line) + "\n" for line in lines)


def unfinished_at(
    lines: Sequence[Mapping[str, Any]], step: int
) -> Mapping[str, Any] | None:
    """Returns the initial state of the next training line of a run stopped at a step.

    It is None if no signal has stopped the run there, between two lines. Raises
    `DataError` if the record does not consist of numbers.
    """
    matching = [x for x in lines if x.get("split") == UNFINISHED and x["step"] == step]
    if not matching:
        return None
    sums, seconds = matching[-1].get("sums"), matching[-1].get("seconds")
    numbers = [*sums.values(), seconds] if isinstance(sums, Mapping) else [None]
    if not all(isinstance(value, int | float) for value in numbers):
        raise DataError(
            f"{METRICS_FILE}: the line of step {step} with split {UNFINISHED!r} must "
            f"hold sums and seconds, received {matching[-1]}"
        )
    return matching[-1]
