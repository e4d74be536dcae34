"""Batches at which a run diverged, and which it leaves out when it goes back.

The order of the batches is a function of the seed. A run that leaves some out uses the
others in the same order, so with the list on record a resumed run does the same.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.reports.metrics_file import SKIPPED_FILE
from albert_tf.storage import files
from albert_tf.training.callbacks import DivergedError
from albert_tf.training.run_folder import RunFolder

# A run that diverges from the same checkpoint more often suffers from something else.
_MAX_FROM_ONE_STEP = 5


class SkippedBatches:
    """The batches that a run leaves out, numbered from 0 in their order.

    Args:
        folder: `RunFolder`. Holds the record.
        writes: bool. Whether this process writes the record; others keep it in memory.
    """

    def __init__(self, folder: RunFolder, writes: bool):
        self._path = folder.join(SKIPPED_FILE)
        self._writes = writes
        self.entries: list[dict[str, Any]] = []
        if files.exists(self._path):
            self.entries = list(files.read_json(self._path)["skipped"])

    def batch_after(self, step: int, phase: int = 0) -> int:
        """Returns the number of the batch that follows `step` updates.

        Args:
            step: int.
            phase: int. Step at which the phase began, if sequences grow longer during
                the run. The batches of each phase are numbered from 0.
        """
        number = step - phase
        for batch in self._of(phase):
            number += batch <= number
        return number

    def _of(self, phase: int) -> list[int]:
        return sorted(e["batch"] for e in self.entries if e.get("phase", 0) == phase)

    def name(self, error: DivergedError, phase: int = 0) -> str:
        """Returns the batch of a divergence for people; see `add`."""
        return _name(self.batch_after(error.step - 1, phase), phase)

    def add(
        self, error: DivergedError, restored_step: int, phase: int = 0
    ) -> dict[str, Any]:
        """Records that the batch of a divergence is left out from now on.

        Args:
            error: `DivergedError`.
            restored_step: int. Step of the checkpoint that the run goes back to.
            phase: int. Step at which the phase of the divergence began.

        Returns:
            The entry, ready for JSON.

        Raises:
            DataError: If the run went back to this checkpoint too often.
        """
        before = [e for e in self.entries if e["restored_step"] == restored_step]
        if len(before) >= _MAX_FROM_ONE_STEP:
            raise DataError(
                f"training diverged {len(before) + 1} times after step "
                f"{restored_step}, each time at another batch; the last time, {error}"
            ) from error
        entry = {
            "batch": self.batch_after(error.step - 1, phase),
            "phase": phase,
            "diverged_at": error.step,
            "restored_step": restored_step,
            **{k: v if math.isfinite(v) else None for k, v in error.values.items()},
        }
        self.entries.append(entry)
        if self._writes:
            # Before anything else: a run killed from now on leaves the batch out, too.
            text = json.dumps({"skipped": self.entries}, indent=2) + "\n"
            files.write_text(self._path, text)
        return entry

    def leave_out(
        self, dataset: tf.data.Dataset, first: int, phase: int = 0
    ) -> tf.data.Dataset:
        """Returns a dataset without these batches.

        Args:
            dataset: Batches, in order.
            first: int. Number of the first one.
            phase: int. Step at which their phase began.
        """
        batches = [batch for batch in self._of(phase) if batch >= first]
        if not batches:
            return dataset
        left_out = tf.constant(sorted(set(batches)), tf.int64)
        kept = dataset.enumerate(first).filter(
            lambda number, _: tf.reduce_all(number != left_out)
        )
        return kept.map(lambda _, batch: batch)


def describe(entry: Mapping[str, Any]) -> str:
    """Returns a line for people about an entry of `SkippedBatches`."""
    return (
        f"diverged at step {entry['diverged_at']:,}: "
        f"{_name(entry['batch'], entry['phase'])} is left out, and training goes on "
        f"from step {entry['restored_step']:,}"
    )


def _name(batch: int, phase: int) -> str:
    of_phase = f" of the phase from step {phase:,}" if phase else ""
    return f"batch {batch:,}{of_phase}"
