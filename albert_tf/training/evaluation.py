"""Evaluates the model of a fine-tuning run, and detects a collapse of its training."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import collect_outputs
from albert_tf.tasks.task import SINGLE_LABEL, EncodedExamples, Task
from albert_tf.tasks.text_classification import ONE_CLASS_IS_NORMAL
from albert_tf.training.callbacks import Callback
from albert_tf.training.context import RunContext
from albert_tf.training.engine import helper_name, is_one_of_several, join_rows, share
from albert_tf.training.examples import CALIBRATION, Split

_CHANCE = 0.98
# A run with fewer steps has hardly learned anything yet, so a collapse is not evident.
_FEW_STEPS = 50


class CollapsedError(DataError):
    """Training collapsed, and the settings say to end the run."""


# Runs a model on rows.
Outputs = Callable[[EncodedExamples], Mapping[str, np.ndarray]]


def calibrated(task: Task, splits: Mapping[str, Split], run: Outputs) -> Task:
    """Returns the task calibrated on held-back training examples, if there are any."""
    split = splits.get(CALIBRATION)
    if split is None:
        return task
    return task.calibrate(split.examples, split.encoded, run(split.encoded))


class Evaluator:
    """Measures the dev splits of a model that trains on batches of a shape.

    The run's averages, if any, are evaluated in place of the weights. Each worker
    computes its share of the rows of every batch, all of them get all outputs, and the
    chief decides. `examples` and `answers` belong to the split that decides, at the
    last call.
    """

    def __init__(self, run: RunContext, shape: BatchShape):
        self._run = run
        self._place, self._num_workers = 0, 1
        if is_one_of_several(run.strategy):
            name = helper_name(run.strategy)
            names = share(run.strategy, name)
            self._place, self._num_workers = names.index(name), len(names)
        parts = run.step.num_shares * self._num_workers
        self._outputs = functools.partial(
            collect_outputs,
            self._predict,
            shape=dataclasses.replace(shape, parts=parts, packing=False),
            batch_size=run.settings.eval_batch_size,
            title="evaluate",
        )
        self.examples: Any = None
        self.answers: Any = None

    def __call__(self) -> dict[str, Any]:
        """Returns the metrics; names of other splits' metrics begin with the split."""
        data, values = self._run.data, {}
        with self._run.averages.in_place():
            task = calibrated(data.task, data.splits, self._outputs)
            for name in data.dev_splits:
                split = data.splits[name]
                outputs = self._outputs(split.encoded)
                answers = task.answers(split.examples, split.encoded, outputs)
                metrics = data.task.compare(split.examples, answers)
                if not values:
                    values = dict(metrics)
                    self.examples, self.answers = split.examples, answers
                else:
                    values |= {f"{name}_{key}": value for key, value in metrics.items()}
        # All have the same outputs, but the last bits of a metric may differ.
        return share(self._run.strategy, values)[0]

    def _predict(self, batch: Mapping[str, np.ndarray]) -> Any:
        """Returns the outputs for a batch, computed by all workers."""
        run = self._run
        if self._num_workers == 1:
            return run.step.predict(batch)
        parts = {k: np.split(v, self._num_workers) for k, v in batch.items()}
        outputs = run.step.predict({k: v[self._place] for k, v in parts.items()})
        together = functools.partial(join_rows, run.strategy)
        return keras.tree.map_structure(together, outputs)


def loss_bounds(
    task: Task,
    targets: Mapping[str, np.ndarray],
    class_weights: Sequence[float] = (),
    label_smoothing: float = 0.0,
) -> tuple[float, float] | None:
    """Returns the loss of perfect answers, and the one of the best constant answer.

    Without weights, which may be empty, and smoothing these are 0 and the entropy of
    the classes. None for tasks other than single-label classification of texts, for
    tasks on which good models do no better, and with a teacher.
    """
    if features.TEACHER_LOGITS in targets:
        return None
    if task.problem_type != SINGLE_LABEL or len(task.labels) < 2:
        return None
    if task.name in ONE_CLASS_IS_NORMAL:
        return None
    labels, count = np.asarray(targets[features.LABELS]), len(task.labels)
    shares = np.bincount(labels, minlength=count) / len(labels)
    weighted = shares * np.asarray(class_weights or [1.0] * count)
    total = float(weighted.sum())
    if not total:
        return None
    # The loss is the mean of weight times cross-entropy with the smoothed label, so
    # the best constant answer is the weighted mean of the smoothed labels.
    smooth = lambda p: (1 - label_smoothing) * p + label_smoothing / count  # noqa: E731
    one = np.eye(count)[0]
    return total * _entropy(smooth(one)), total * _entropy(smooth(weighted / total))


def _entropy(shares: np.ndarray) -> float:
    return -sum(p * math.log(p) for p in shares.tolist() if p)


class Collapse(Callback):
    """Detects training that has collapsed to the same answer for everything.

    It warns or ends the run after the warm-up, when two consecutive evaluations or the
    last one show it. `evaluations` are on record already; `recorded` returns all lines.
    """

    def __init__(
        self,
        run: RunContext,
        class_weights: Sequence[float],
        evaluation: Evaluator,
        evaluations: Sequence[Mapping[str, Any]],
        recorded: Callable[[], list[dict]],
    ):
        self._run = run
        self._evaluation = evaluation
        self._recorded = recorded
        self._evaluations = list(evaluations)
        smoothing = run.settings.label_smoothing
        targets = run.data.train.targets
        self._bounds = loss_bounds(run.data.task, targets, class_weights, smoothing)
        self._has_warned = False

    def on_evaluate(self, step: int, values: dict[str, Any]) -> None:
        """Judges the evaluation; raises `CollapsedError` if the run must end."""
        reason, certain = share(self._run.strategy, self.find(step))[0]
        if certain:
            self._report(step, reason)
        if reason:
            values["collapsed"] = 1.0
        self._evaluations.append({"split": "eval", "step": step, **values})

    def find(self, step: int) -> tuple[str, bool]:
        """Returns a description of the collapse or "", and whether it is certain."""
        settings, task = self._run.settings, self._run.data.task
        if step <= settings.num_warmup_steps or settings.num_train_steps < _FEW_STEPS:
            return "", False
        examples, answers = self._evaluation.examples, self._evaluation.answers
        reason = task.collapse(examples, answers)
        reason = reason or self._loss_at_chance(step)
        again = self._evaluations and self._evaluations[-1].get("collapsed")
        last = step == settings.num_train_steps
        return reason, bool(reason) and (bool(again) or last)

    def _loss_at_chance(self, step: int) -> str:
        settings = self._run.settings
        since = max(settings.num_warmup_steps, step // 2)
        losses = [
            line["loss"]
            for line in self._recorded()
            if line["split"] == "train" and line["step"] > since
        ]
        early = 2 * step < settings.num_train_steps
        if self._bounds is None or not losses or early:
            return ""
        mean = sum(losses) / len(losses)
        right, guessing = self._bounds
        if mean < right + _CHANCE * (guessing - right):
            return ""
        return f"the loss is {mean:.4f}, and {guessing:.4f} when guessing"

    def _report(self, step: int, reason: str) -> None:
        text = (
            f"training collapsed at step {step}: {reason}; try a lower "
            "--learning_rate, a longer warm-up, a larger batch or another --seed"
        )
        if self._run.settings.on_collapse != "warn":
            raise CollapsedError(text)
        if not self._has_warned:
            self._has_warned = True
            logging.warning("%s", text)
