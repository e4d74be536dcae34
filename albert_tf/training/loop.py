"""The training loop: steps, records, evaluations and checkpoints in order."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.objectives.losses import pretraining_means
from albert_tf.training.progress import Progress, Stopwatch
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import PretrainStep


def train(
    step: PretrainStep,
    batches: tf.distribute.DistributedDataset,
    settings: Any,
    checkpoints: TrainingCheckpoints,
    progress: Progress,
    evaluate: Callable[[], dict[str, Any]] | None = None,
) -> dict[str, Any] | None:
    """Trains from the present step to the last.

    Args:
        step: `PretrainStep`.
        batches: Training batches from the present step on.
        settings: `PretrainSettings`.
        checkpoints, progress: Of the run.
        evaluate: Function that returns metrics on held-out data, or None.

    Returns:
        The last evaluation, or None.

    Raises:
        DataError: If the loss is no longer a number.
    """
    iterator = iter(batches)
    done, last = checkpoints.step, settings.num_train_steps
    watch, measured = Stopwatch(), _Sums()
    evaluation = None
    while done < last:
        count = _steps_until_boundary(done, settings)
        sums = step.train(iterator, count)
        done += count
        measured.add(sums)
        progress.advance(done)
        if done % settings.log_steps == 0 or done == last:
            values = measured.means(watch.lap())
            values["learning_rate"] = float(step.optimizer.learning_rate.numpy())
            _check_finite(values, done)
            progress.record("train", done, values)
            measured = _Sums()
        if done % settings.save_checkpoints_steps == 0 or done == last:
            checkpoints.save()
        if evaluate and (_is_due(done, settings.eval_steps) or done == last):
            evaluation = evaluate()
            progress.record("eval", done, evaluation)
            progress.say(describe_evaluation(done, evaluation))
            watch.lap()  # The time of an evaluation is not training time.
    checkpoints.finish()
    return evaluation


def evaluate_batches(
    step: PretrainStep, batches: tf.distribute.DistributedDataset, max_steps: int
) -> dict[str, float]:
    """Losses and accuracies over held-out batches.

    Args:
        step: `PretrainStep`.
        batches: Distributed evaluation batches.
        max_steps: int. At most so many batches; 0 for all.

    Returns:
        `loss`, `mlm_loss`, `mlm_accuracy`, and where the batches have labels
        `sop_loss`, `sop_accuracy`.
    """
    total = _Sums()
    for number, batch in enumerate(batches, 1):
        total.add(step.evaluate(batch))
        if number == max_steps:
            break
    return total.means()


def describe_evaluation(step: int, values: dict[str, Any]) -> str:
    """One line for people."""
    parts = [f"step {step}: eval loss {values['loss']:.3f}"]
    for part, name in (("mlm", "MLM"), ("sop", "SOP")):
        if f"{part}_accuracy" not in values:
            continue
        text = f"{name} accuracy {values[f'{part}_accuracy']:.3f}"
        if f"{part}_baseline" in values:
            text += f" (trivial baseline {values[f'{part}_baseline']:.3f})"
        parts.append(text)
    return ", ".join(parts)


class _Sums:
    """Adds up sums on the device; waits for it only when means are asked for."""

    def __init__(self):
        self.totals = {}

    def add(self, sums: dict[str, tf.Tensor]) -> None:
        sums = dict(sums)
        norm = sums.pop("grad_norm", None)
        for name, value in sums.items():
            self.totals[name] = self.totals.get(name, 0.0) + value
        if norm is not None:
            self.norm = norm

    def means(self, seconds: float | None = None) -> dict[str, float]:
        sums = {k: np.float32(v.numpy()) for k, v in self.totals.items()}
        if not sums:
            raise DataError("the evaluation data holds no batch")
        means = pretraining_means(sums)
        values = {k: float(v) for k, v in means.items()}
        if not sums["sop_weight"]:  # records without labels: no such thing is trained
            values = {k: v for k, v in values.items() if not k.startswith("sop_")}
        if seconds is not None:
            values["grad_norm"] = float(self.norm.numpy())
            values["tokens_per_second"] = float(sums["tokens"]) / seconds
        return values


def _steps_until_boundary(done: int, settings: Any) -> int:
    """How many steps one call may take before something else is due."""
    boundaries = [settings.log_steps, settings.save_checkpoints_steps]
    boundaries += [settings.eval_steps] if settings.eval_steps else []
    counts = [every - done % every for every in boundaries]
    left = settings.num_train_steps - done
    return min(*counts, left, settings.iterations_per_loop)


def _is_due(done: int, every: int) -> bool:
    return bool(every) and done % every == 0


def _check_finite(values: dict[str, float], step: int) -> None:
    if not math.isfinite(values["loss"]):
        raise DataError(
            f"the loss is {values['loss']} at step {step} (learning rate "
            f"{values['learning_rate']:g}, gradient norm {values['grad_norm']:g}): "
            "lower --learning_rate or lengthen --num_warmup_steps"
        )
