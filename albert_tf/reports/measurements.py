"""The lines of `metrics.jsonl` by curve, as long as a run may be."""

import array
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf.reports.metrics_file import UNFINISHED

# Of which split a curve is, of what, and, if there is one per weight, of which.
Name = tuple[str, str, str]
_NOT_CURVES = frozenset({"split", "step"})
# The training metrics that tell time and tokens.
TOKENS = "tokens"
SPEED = "tokens_per_second"
# Set at an evaluation of a fine-tuning run that looked collapsed.
COLLAPSED = "collapsed"
# The speed of now is that of the last lines.
_RECENT = 10


@dataclasses.dataclass
class Curve:
    """What was measured of one thing.

    Attributes:
        steps: array of float. In the order of the log.
        values: array of float. They may be NaN or infinite.
    """

    steps: array.array = dataclasses.field(default_factory=lambda: array.array("d"))
    values: array.array = dataclasses.field(default_factory=lambda: array.array("d"))

    def append(self, step: float, value: float) -> None:
        """Adds a number."""
        self.steps.append(step)
        self.values.append(value)


@dataclasses.dataclass
class Measurements:
    """What is on record of a run.

    Attributes:
        curves: dict of `Curve` by split, name and weight, in the order of their
            appearance. The weight is empty for numbers of the whole model.
        last_step: int. The last step on record; 0 without lines.
        clock: `Curve` or None. Seconds of training since the start of the run, by
            step. None if the log lacks them, as logs of earlier versions do.
        tokens: `Curve`. Tokens since the start, by step.
        recent_seconds: float or None. Seconds of a step, according to the last lines.
        skipped: int. Number of lines that are not measurements.
        rollbacks: list of dict. Lines about batches that the run left out.
    """

    curves: dict[Name, Curve] = dataclasses.field(default_factory=dict)
    last_step: int = 0
    clock: Curve | None = None
    tokens: Curve = dataclasses.field(default_factory=Curve)
    recent_seconds: float | None = None
    skipped: int = 0
    rollbacks: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)

    def curve(self, split: str, name: str) -> Curve:
        """Returns a curve, empty if nothing was measured."""
        return self.curves.get((split, name, ""), Curve())


def collect(lines: Iterable[Any]) -> Measurements:
    """Sorts the lines of a run.

    Args:
        lines: Iterable of what JSON may hold, a line's content each. Numbers within an
            object, such as the trust ratios, are those of a weight each.

    Returns:
        `Measurements`.
    """
    result = Measurements()
    for line in lines:
        step = line.get("step") if isinstance(line, Mapping) else None
        if not _is_number(step) or not 0 <= step < 2**53:
            result.skipped += 1
            continue
        result.last_step = max(result.last_step, int(step))
        split = line.get("split", "train")
        split = split if isinstance(split, str) else "train"
        if split == "skipped":
            result.rollbacks.append(line)
        if split in ("skipped", UNFINISHED):
            continue
        for name, weight, value in _numbers(line):
            curve = result.curves.setdefault((split, name, weight), Curve())
            curve.append(step, value)
    _read_clock(result)
    return result


def _numbers(line: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    for name, value in line.items():
        if name in _NOT_CURVES:
            continue
        if _is_number(value):
            yield name, "", _as_float(value)
        elif isinstance(value, Mapping):
            for inner, number in value.items():
                if _is_number(number):
                    yield name, inner, _as_float(number)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _read_clock(result: Measurements) -> None:
    """Adds up the tokens and seconds of the lines of training."""
    tokens, speeds = result.curve("train", TOKENS), result.curve("train", SPEED)
    speed_at = dict(zip(speeds.steps, speeds.values, strict=True))
    clock, seconds, total, laps = Curve(), 0.0, 0.0, []
    previous = 0.0
    for step, count in zip(tokens.steps, tokens.values, strict=True):
        speed = speed_at.get(step, math.nan)
        if not (0 <= count < math.inf and 0 < speed < math.inf):
            continue
        seconds, total = seconds + count / speed, total + count
        clock.append(step, seconds)
        result.tokens.append(step, total)
        if step > previous:
            laps.append((step - previous, count / speed))
        previous = step
    # Lines without these numbers would make the sums too small.
    if not clock.steps or len(clock.steps) != len(speeds.steps):
        result.tokens = Curve()
        return
    result.clock = clock
    # The first line includes the time that the step was compiled in.
    recent = (laps[1:] or laps)[-_RECENT:]
    steps = sum(lap[0] for lap in recent)
    if steps:
        result.recent_seconds = sum(lap[1] for lap in recent) / steps
