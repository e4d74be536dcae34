"""Which evaluation of a run is the best one, and whether it is time to stop."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Last words of the names of metrics of which less is better.
_LOWER_IS_BETTER = frozenset({"loss", "mse"})


def lower_is_better(metric: str) -> bool:
    """Returns whether less is better of a metric, such as `mlm_loss`."""
    return metric.rpartition("_")[2] in _LOWER_IS_BETTER


class Selection:
    """Decides between the evaluations of a run.

    All decisions follow from the metrics on record, so a resumed run makes those of an
    uninterrupted one. An evaluation whose metric is no finite number is never the best.

    Args:
        metric: str. Name of the metric that decides.
        patience: int. Number of evaluations without a better value after which to stop;
            0 for never.
        lines: sequence of dict. Evaluations on record, each with its `step`.
    """

    def __init__(
        self, metric: str, patience: int, lines: Sequence[Mapping[str, Any]] = ()
    ):
        self.metric = metric
        self.patience = patience
        self.best_step: int | None = None
        self.best_value = math.nan
        self._last_step = -1
        self._waited = 0
        for line in lines:
            self.add(line["step"], line)

    def add(self, step: int, values: Mapping[str, Any]) -> bool:
        """Adds an evaluation; returns whether it is the best one so far."""
        if step <= self._last_step:
            return False
        self._last_step = step
        value = float(values[self.metric])
        if self._is_better(value):
            self.best_step, self.best_value, self._waited = step, value, 0
            return True
        self._waited += 1
        return False

    @property
    def has_no_number(self) -> bool:
        """Whether the metric was not a finite number at any evaluation."""
        return self.best_step is None and self._last_step >= 0

    @property
    def should_stop(self) -> bool:
        """Whether there was no better value for too long."""
        return bool(self.patience) and self._waited >= self.patience

    def _is_better(self, value: float) -> bool:
        if self.best_step is None or not math.isfinite(value):
            return math.isfinite(value)
        if lower_is_better(self.metric):
            return value < self.best_value
        return value > self.best_value
