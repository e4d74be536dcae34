"""Sequences that grow longer during a run: its phases, each with its own records.

Records of one length cannot serve another. A longer example cannot be cut, because its
label is about two whole segments, and rows of short examples would be padding.
"""

import dataclasses
import re
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.training.settings import Intervals

# Stands in --input_file for the length of a phase.
PLACEHOLDER = "{length}"
_PART = re.compile(r"(\d+):(\d+)(?::(\d+))?")


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps with rows of one length.

    Attributes:
        first_step: int. Updates made before it.
        last_step: int. Updates made when it ends.
        settings: `PretrainSettings`. As of a run of this length alone.
    """

    first_step: int
    last_step: int
    settings: Any

    def intervals(self) -> Intervals:
        """Returns when something is due; the end of the phase is the end of a run."""
        intervals = self.settings.intervals()
        return dataclasses.replace(intervals, num_train_steps=self.last_step)


def phases_of(settings: Any) -> list[Phase]:
    """Returns the phases of a run, at least one.

    Args:
        settings: `PretrainSettings`.

    Raises:
        UsageError: If the schedule is invalid, or does not fit the other settings.
    """
    if not settings.sequence_length_schedule:
        return [Phase(0, settings.num_train_steps, settings)]
    parts = _parse(settings.sequence_length_schedule)
    _check(settings, parts)
    phases, first = [], 0
    for length, steps, batch in parts:
        # 77 predictions in 512 tokens are 20 in 128, as in the original.
        predictions = settings.max_predictions_per_seq
        if predictions is not None:
            predictions = -(-predictions * length // parts[-1][0])
        phase = dataclasses.replace(
            settings,
            sequence_length_schedule="",
            input_file=settings.input_file.replace(PLACEHOLDER, str(length)),
            max_seq_length=length,
            max_predictions_per_seq=predictions,
            train_batch_size=batch or settings.train_batch_size,
        )
        phases.append(Phase(first, first + steps, phase))
        first += steps
    return phases


def _parse(schedule: str) -> list[tuple[int, int, int | None]]:
    """Returns length, steps and batch of each phase."""
    matches = [_PART.fullmatch(part.strip()) for part in schedule.split(",")]
    parts = [
        (int(m[1]), int(m[2]), None if m[3] is None else int(m[3]))
        for m in matches
        if m
    ]
    lengths = [length for length, *_ in parts]
    numbers = [number for part in parts for number in part if number is not None]
    rising = lengths == sorted(set(lengths))
    if len(parts) < len(matches) or 0 in numbers or not rising:
        raise UsageError(
            "--sequence_length_schedule must be rising lengths with positive numbers "
            "of steps and perhaps batch sizes, such as 128:9000,512:1000 or "
            f"128:9000:4096,512:1000:1024, received {schedule!r}"
        )
    return parts


def _check(settings: Any, parts: list[tuple[int, int, int | None]]) -> None:
    schedule = f"--sequence_length_schedule={settings.sequence_length_schedule}"
    total, longest = sum(steps for _, steps, _ in parts), parts[-1][0]
    if settings.num_train_steps != total:
        raise UsageError(
            f"--num_train_steps must be {total}, the sum of {schedule}, received "
            f"{settings.num_train_steps}"
        )
    if settings.max_seq_length != longest:
        raise UsageError(
            f"--max_seq_length must be {longest}, the longest of {schedule}, received "
            f"{settings.max_seq_length}"
        )
    if len(parts) > 1 and PLACEHOLDER not in settings.input_file:
        raise UsageError(
            f"--input_file must contain {PLACEHOLDER} with {schedule}, because each "
            f"length needs its own records, received {settings.input_file}"
        )
    sizes = {batch or settings.train_batch_size for *_, batch in parts}
    if settings.scale_learning_rate and sizes != {settings.train_batch_size}:
        raise UsageError(
            "--scale_learning_rate knows one --train_batch_size="
            f"{settings.train_batch_size}, received {schedule}; give the rate itself"
        )
