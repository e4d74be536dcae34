"""The file `metrics.jsonl`: measurements of a run as JSON lines."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

METRICS_FILE = "metrics.jsonl"
# What a pretraining run answers to masked sentences at its evaluations; a file of the
# same kind.
SAMPLES_FILE = "samples.jsonl"
# The batches that a run leaves out after divergences.
SKIPPED_FILE = "skipped_batches.json"
# The split of a line that follows one of training which a signal has ended early. It
# holds what the next one begins with.
UNFINISHED = "unfinished"


class MetricsFile:
    """Measurements of a run as JSON lines, each with its `step`.

    Args:
        path: str. Path of the file.
        last_step: int. Step at which the run continues. Later lines are removed: they
            belong to steps after the last checkpoint, which will be repeated. A
            training line that a signal has ended early stays until the next one, which
            its steps are part of, takes its place.
    """

    def __init__(self, path: str | os.PathLike, last_step: int):
        self.path = os.fspath(path)
        self.lines = [x for x in read_metrics(self.path) if x["step"] <= last_step]
        kept = lines_until(self.lines, last_step)
        self._early = [line for line in self.lines if line not in kept]
        self._is_behind = False
        self._write()

    def settled(self) -> list[dict[str, Any]]:
        """Returns the lines without the training lines that the next one replaces."""
        return [line for line in self.lines if line not in self._early]

    @property
    def early_steps(self) -> list[int]:
        """Steps of the training lines that the next one replaces."""
        return [line["step"] for line in self._early]

    def append(self, values: dict[str, Any]) -> None:
        """Adds a line.

        Args:
            values: dict. What was measured, with its `step`.
        """
        replaces = bool(self._early) and values.get("split") == "train"
        if replaces:
            self.lines = self.settled()
            self._early = []
        self.lines.append(values)
        try:
            if replaces or self._is_behind or files.is_remote(self.path):
                self._write()
            else:
                with open(self.path, "a", encoding="utf-8") as f:
                    f.write(json.dumps(values) + "\n")
        except (OSError, DataError, UsageError) as e:
            # A run goes on without its measurements; all lines are in memory.
            if not self._is_behind:
                logging.warning("%s; it is written again with the next line", e)
            self._is_behind = True
        else:
            self._is_behind = False

    def settle(self) -> None:
        """Tries once more to write lines that could not be written."""
        if not self._is_behind:
            return
        try:
            self._write()
            self._is_behind = False
        except (OSError, DataError, UsageError) as e:
            logging.warning("%s; the last lines are lost", e)

    def _write(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        files.write_text(self.path, text)


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the lines of a metrics file, or none if it does not exist.

    A last line that is incomplete, because the run was killed, is left out.

    Raises:
        DataError: If another line is not JSON.
    """
    return list(iterate_metrics(path))


def iterate_metrics(path: str | os.PathLike) -> Iterator[Any]:
    """Yields what `read_metrics` returns, one line after the other."""
    if not files.exists(path):
        return
    lines = files.read_text(path).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            if number < len(lines):
                raise DataError(f"{path}: line {number} must be JSON") from None


def lines_until(lines: Sequence[Mapping[str, Any]], step: int) -> list[Any]:
    """Returns the lines that count for a run that continues from a step.

    Later lines belong to steps after the checkpoint, which will be repeated. The steps
    of a training line that a signal has ended early will be part of the next line.
    """
    kept = [line for line in lines if line["step"] <= step]
    early = {line["step"] for line in kept if line.get("split") == UNFINISHED}
    return [x for x in kept if x.get("split") != "train" or x["step"] not in early]


def unfinished_at(
    lines: Sequence[Mapping[str, Any]], step: int
) -> Mapping[str, Any] | None:
    """Returns what the next training line of a run that stopped at a step begins with.

    None if no signal has stopped it there, between two lines.

    Raises:
        DataError: If what is on record is not numbers.
    """
    found = [x for x in lines if x.get("split") == UNFINISHED and x["step"] == step]
    if not found:
        return None
    sums, seconds = found[-1].get("sums"), found[-1].get("seconds")
    numbers = [*sums.values(), seconds] if isinstance(sums, Mapping) else [None]
    if not all(isinstance(value, int | float) for value in numbers):
        raise DataError(
            f"{METRICS_FILE}: the line of step {step} with split {UNFINISHED!r} must "
            f"hold sums and seconds, received {found[-1]}"
        )
    return found[-1]
