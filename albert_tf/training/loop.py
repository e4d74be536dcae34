"""The training loop: steps, log lines, checkpoints and evaluations in order."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.training.intervals import Intervals
from albert_tf.training.progress import Progress, Stopwatch
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import TrainStep

Evaluate = Callable[[], dict[str, Any]]


def train(
    step: TrainStep,
    batches: tf.distribute.DistributedDataset,
    intervals: Intervals,
    checkpoints: TrainingCheckpoints,
    progress: Progress,
    evaluate: Evaluate | None = None,
    evaluated_steps: Sequence[int] = (),
    should_stop: Callable[[], bool] = lambda: False,
    on_save: Callable[[], None] = lambda: None,
) -> None:
    """Trains from the restored step to the last one.

    Args:
        step: `TrainStep`. Its objective also describes what was measured.
        batches: Training batches, starting at the restored step.
        intervals: `Intervals`.
        checkpoints: `TrainingCheckpoints`. Checkpoints of the run, already restored.
        progress: `Progress`. Records and shows what is measured.
        evaluate: Function that returns metrics on held-out data, or None.
        evaluated_steps: Steps whose evaluation is on record. A run that was killed
            between a checkpoint and its evaluation begins with that evaluation.
        should_stop: Function that says, before every call of the step, whether the run
            ends early.
        on_save: Function that is called after a checkpoint.

    Raises:
        DataError: If the loss or a gradient is no longer a finite number.
    """
    iterator = iter(batches)
    done, last = checkpoints.step, intervals.num_train_steps
    if evaluate and intervals.evaluation_is_due(done) and done not in evaluated_steps:
        _evaluate(step, evaluate, done, progress)
    watch, sums = Stopwatch(), _Sums(step)
    while done < last and not should_stop():
        count = intervals.next_count(done)
        sums.add(step.train(iterator, count))
        done += count
        progress.advance(done)
        save = intervals.save_is_due(done)
        # Also with every checkpoint, so that a run continued from it measures the same.
        log = save or intervals.log_is_due(done)
        evaluation = evaluate and intervals.evaluation_is_due(done)
        if log or save or evaluation:
            # Also before a checkpoint: one whose weights are not numbers would only be
            # resumed to fail again. Reading the sums waits for the device, so a pause
            # never includes training.
            values = sums.metrics() | sums.last_step()
            _check_finite(values, done)
        if log:
            rate = values.pop("learning_rate")
            values["tokens_per_second"] = sums.num_tokens() / watch.lap()
            progress.record("train", done, {**values, "learning_rate": rate})
            sums = _Sums(step)
        with watch.paused():
            if save:
                checkpoints.save()
                on_save()
            if evaluation:
                _evaluate(step, evaluate, done, progress)
    checkpoints.finish()


def evaluate_batches(
    step: TrainStep, batches: tf.distribute.DistributedDataset, max_steps: int
) -> dict[str, float]:
    """Returns losses and accuracies over held-out batches.

    Args:
        step: `TrainStep`.
        batches: Distributed evaluation batches.
        max_steps: int. Maximum number of batches; 0 for all.

    Returns:
        `metrics` of the objective.

    Raises:
        DataError: If there is no batch.
    """
    sums = _Sums(step)
    for number, batch in enumerate(batches, 1):
        sums.add(step.evaluate(batch))
        if number == max_steps:
            break
    return sums.metrics()


def _evaluate(
    step: TrainStep, evaluate: Evaluate, done: int, progress: Progress
) -> None:
    values = evaluate()
    progress.record("eval", done, values)
    progress.log(step.objective.describe(done, values))


class _Sums:
    """Adds up sums on the device and waits for it only when they are read."""

    def __init__(self, step: TrainStep):
        self.step = step
        self.totals: dict[str, tf.Tensor] = {}
        self.last: dict[str, tf.Tensor] = {}

    def add(self, results: dict[str, tf.Tensor]) -> None:
        """Adds the sums of a call of the step; keeps its other results."""
        for name, value in results.items():
            if name in self.step.sum_names:
                self.totals[name] = self.totals.get(name, 0.0) + value
            else:
                self.last[name] = value

    def metrics(self) -> dict[str, float]:
        """Returns the objective's metrics."""
        if not self.totals:
            raise DataError("the evaluation data holds no batch")
        return self.step.objective.metrics(self._numbers())

    def last_step(self) -> dict[str, float]:
        """Returns what the step reports of its last update alone."""
        return {name: float(value.numpy()) for name, value in self.last.items()}

    def num_tokens(self) -> float:
        """Returns the number of tokens."""
        return float(self.totals["tokens"].numpy())

    def _numbers(self) -> dict[str, np.float32]:
        return {name: np.float32(v.numpy()) for name, v in self.totals.items()}


def _check_finite(values: dict[str, float], step: int) -> None:
    for name, title in (("loss", "loss"), ("grad_norm", "gradient norm")):
        if not math.isfinite(values[name]):
            raise DataError(
                f"the {title} is {values[name]} at step {step} (learning rate "
                f"{values['learning_rate']:g}): lower --learning_rate or lengthen "
                "--num_warmup_steps"
            )
