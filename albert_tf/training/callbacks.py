"""What the training loop calls beside its steps, and the check that it converges.

The state of a callback is a function of the metrics on record, or is kept in a file of
its own, so a resumed run continues as one that was not stopped.
"""

import collections
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError

# Log lines whose median is the usual value, and how many there must be of them.
_WINDOW = 20
_MINIMUM = 3
_MEASURES = {"loss": "loss", "grad_norm": "gradient norm"}


class Callback:
    """Does nothing; derived classes do something when it is their turn.

    Attributes:
        should_stop: bool. Whether the run is to end before the next call of the step.
    """

    should_stop = False

    def on_step(
        self,
        done: int,
        losses: Sequence[float],
        norms: Sequence[float],
        learning_rate: float,
    ) -> None:
        """Is called after every call of the step, in every worker.

        Args:
            done: int. Number of updates before them.
            losses: Loss of each step.
            norms: Global gradient norm of each step, before clipping.
            learning_rate: float. The last rate.

        Raises:
            DivergedError: If training is not to go on from here.
        """

    def on_log(self, values: Mapping[str, Any]) -> None:
        """Is called with every line of training that is recorded."""

    def on_evaluate(self, step: int, values: dict[str, Any]) -> None:
        """Is called after an evaluation, and may add to its values.

        They are recorded afterwards: a run that was killed in between repeats both.
        """

    def on_save(self) -> None:
        """Is called after a checkpoint was written."""


class DivergedError(DataError):
    """Training diverged.

    Attributes:
        step: int. Number of the update, counted from 1, at which it was noticed.
        values: dict. Loss and gradient norm of that update.
    """

    def __init__(self, message: str, step: int, values: Mapping[str, float]):
        super().__init__(message)
        self.step = step
        self.values = dict(values)


class DivergenceGuard(Callback):
    """Judges the loss and the gradient norm of every step.

    The usual value is the median of the last 20 log lines, from the third line on. It
    depends on nothing but what is on record, so a resumed run decides alike.

    Args:
        lines: Lines of `metrics.jsonl` up to the step where training begins.
        max_loss_ratio: float. A loss above this multiple of the usual one is a
            divergence; 0: only one that is not finite.
        max_norm_ratio: float. The same for the global norm of the gradients.
    """

    def __init__(
        self,
        lines: Iterable[Mapping[str, Any]] = (),
        *,
        max_loss_ratio: float = 0.0,
        max_norm_ratio: float = 0.0,
    ):
        self.ratios = {"loss": max_loss_ratio, "grad_norm": max_norm_ratio}
        self._usual = {n: collections.deque(maxlen=_WINDOW) for n in _MEASURES}
        for line in lines:
            if line.get("split") == "train":
                self.on_log(line)

    def on_log(self, values: Mapping[str, Any]) -> None:
        """Takes note of a log line of training."""
        for name, usual in self._usual.items():
            if name in values:
                usual.append(values[name])

    def on_step(
        self,
        done: int,
        losses: Sequence[float],
        norms: Sequence[float],
        learning_rate: float,
    ) -> None:
        """Judges the steps of one call; the error names the first that diverged."""
        limits = {name: self._limit(name) for name in _MEASURES}
        for step, pair in enumerate(zip(losses, norms, strict=True), done + 1):
            values = {name: float(v) for name, v in zip(_MEASURES, pair, strict=True)}
            for name, title in _MEASURES.items():
                value, limit = values[name], limits[name]
                if math.isfinite(value) and value <= limit:
                    continue
                text = f"the {title} is {value:g} at step {step}"
                if math.isfinite(value):
                    usual = limit / self.ratios[name]
                    text += f", {value / usual:.1f} times the usual {usual:g}"
                raise DivergedError(
                    f"{text} (learning rate {learning_rate:g}): lower --learning_rate "
                    "or lengthen --num_warmup_steps",
                    step,
                    values,
                )

    def _limit(self, name: str) -> float:
        values, ratio = self._usual[name], self.ratios[name]
        if not ratio or len(values) < _MINIMUM:
            return math.inf
        return ratio * statistics.median(values)
