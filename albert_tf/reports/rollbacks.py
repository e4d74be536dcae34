"""Batches at which a run diverged, and which it left out when it went back."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf.reports.metrics_file import SKIPPED_FILE
from albert_tf.reports.page import Table, as_text
from albert_tf.storage import files

_COUNTS = ("diverged_at", "restored_step", "batch")
_LOST = "not finite"


@dataclasses.dataclass(frozen=True)
class Rollback:
    """A divergence after which a run went back to a checkpoint.

    Attributes:
        diverged_at: int. The step at which it was noticed.
        restored_step: int. The step of the checkpoint.
        batch: int. Index of the batch that is left out from then on, from 0.
        phase: int. Step at which the phase began whose batches are counted.
        loss: float or None. Loss of the step; None if it was not finite.
        grad_norm: float or None. Global norm of its gradients; the same.
    """

    diverged_at: int
    restored_step: int
    batch: int
    phase: int = 0
    loss: float | None = None
    grad_norm: float | None = None

    def describe(self) -> str:
        """Returns a line for people."""
        phase = f" of the phase from step {self.phase:,}" if self.phase else ""
        return (
            f"diverged at step {self.diverged_at:,}: loss {_as_text(self.loss)}, "
            f"gradient norm {_as_text(self.grad_norm)}; batch {self.batch:,}{phase} "
            f"left out, back to step {self.restored_step:,}"
        )


def read_rollbacks(folder: str, lines: Sequence[Any]) -> list[Rollback]:
    """Returns the rollbacks of a run in the order in which they happened.

    Args:
        folder: str. The folder of the run.
        lines: Sequence of what JSON may hold. The lines of its log about them, for a
            folder that only has the log.

    Raises:
        DataError: If the record of the run is damaged.
    """
    # Holds all of them. The log may lack some: a run that goes on from an older
    # checkpoint, because its last one is damaged, removes the later lines.
    where = files.join(folder, SKIPPED_FILE)
    if files.exists(where):
        recorded = files.read_json(where).get("skipped")
        lines = recorded if isinstance(recorded, list) else []
    return list(_parse(lines))


def rollback_table(runs: Mapping[str, Sequence[Rollback]]) -> Table | None:
    """Returns a table of the rollbacks; None if there are none.

    Args:
        runs: Mapping. The rollbacks by the name of the run.
    """
    found = [(name, one) for name, several in runs.items() for one in several]
    columns = {
        "run": [name for name, _ in found] if len(runs) > 1 else None,
        "diverged at step": [one.diverged_at for _, one in found],
        "loss": [_as_text(one.loss) for _, one in found],
        "gradient norm": [_as_text(one.grad_norm) for _, one in found],
        "batch left out": [one.batch for _, one in found],
        "of the phase from step": [one.phase for _, one in found],
        "back to step": [one.restored_step for _, one in found],
    }
    if not any(one.phase for _, one in found):
        columns["of the phase from step"] = None
    shown = {name: values for name, values in columns.items() if values is not None}
    rows = list(zip(*shown.values(), strict=True))
    return Table("Batches left out", list(shown), rows) if found else None


def _parse(lines: Iterable[Any]) -> Iterable[Rollback]:
    """Yields what can be read; a file that a person has changed ends no page."""
    for line in lines:
        line = line if isinstance(line, Mapping) else {}
        counts = [line.get(name) for name in _COUNTS]
        phase = line.get("phase", 0)
        if all(map(_is_count, [*counts, phase])):
            loss, norm = (_number(line.get(name)) for name in ("loss", "grad_norm"))
            yield Rollback(*counts, phase, loss, norm)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _number(value: Any) -> float | None:
    return value if type(value) is float else None


def _as_text(value: float | None) -> str:
    return _LOST if value is None else as_text(value)
