"""Evaluates the model of a fine-tuning run on the splits of its task."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import DataError, UsageError
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import Forward, collect_outputs
from albert_tf.tasks.task import SINGLE_LABEL, EncodedExamples, Options, Task
from albert_tf.tasks.texts.text_classification import ONE_CLASS_IS_NORMAL

# Held back from the training examples, to choose a threshold.
CALIBRATION = "calibration"
_CHANCE = 0.98


class CollapsedError(DataError):
    """Training collapsed, and the run was asked not to go on."""


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a task.

    Attributes:
        examples: The examples, of the task's family.
        encoded: `EncodedExamples`. The same, as rows.
    """

    examples: Any
    encoded: EncodedExamples

    @property
    def is_labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples.labels is not None


def dev_splits(splits: Mapping[str, Split]) -> list[str]:
    """Returns the splits that are evaluated, the one that decides first."""
    return [
        name
        for name, split in splits.items()
        if name.startswith("dev") and split.is_labelled
    ]


def check_metric(
    task: Task, splits: Mapping[str, Split], metric: str, needs_dev: Sequence[str]
) -> None:
    """Checks, before training, that there will be what settings rely on.

    Args:
        task: `Task`. With the labels of the model.
        splits: dict. `Split` by name.
        metric: str. Name of a metric, or an empty string.
        needs_dev: sequence of str. Settings that need dev examples.

    Raises:
        UsageError: If there are no dev examples, or no such metric.
    """
    names = dev_splits(splits)
    if needs_dev and not names:
        raise UsageError(
            f"{', '.join(needs_dev)}: there are no dev examples to evaluate on "
            "(--dev_fraction holds some back)"
        )
    if not metric:
        return
    known = [
        name if split == names[0] else f"{split}_{name}"
        for split in names
        for name in task.family.metric_names(task, splits[split].examples)
    ]
    if metric not in known:
        reason = " (the loss is measured on training batches only)"
        raise UsageError(
            f"metric must be one of {', '.join(known)}, received {metric!r}"
            + (reason if metric == "loss" else "")
        )


class Evaluator:
    """Turns a model into answers and metrics.

    Args:
        task: `Task`. With the labels of the model.
        splits: dict. `Split` by name.
        shape: `BatchShape`. How to make batches; not packed.
        batch_size: int. Rows per batch.
        forward: callable. See `outputs.collect_outputs`.

    Attributes:
        options: `Options`. Those of the task, with a calibrated threshold.
    """

    def __init__(
        self,
        task: Task,
        splits: Mapping[str, Split],
        shape: BatchShape,
        batch_size: int,
        forward: Forward,
    ):
        self.task = task
        self.splits = splits
        self.options: Options = task.options
        self._shape = dataclasses.replace(shape, packing=False)
        self._batch_size = batch_size
        self._forward = forward

    def calibrate(self) -> None:
        """Chooses what is chosen on held-back training examples, if there are any."""
        if CALIBRATION in self.splits:
            split = self.splits[CALIBRATION]
            self.options = self.task.family.calibrate(
                self.task, split.examples, split.encoded, self._run(split), self.options
            )

    def answers(self, name: str) -> Any:
        """Returns the answers to the examples of a split."""
        split = self.splits[name]
        return self.task.family.answers(
            self.task, split.examples, split.encoded, self._run(split), self.options
        )

    def metrics(self, name: str, answers: Any) -> dict[str, float]:
        """Returns the metrics of the answers to a labelled split."""
        return self.task.family.metrics(self.task, self.splits[name].examples, answers)

    def dev_splits(self) -> list[str]:
        """Returns the splits that are evaluated, the one that decides first."""
        return dev_splits(self.splits)

    def _run(self, split: Split) -> dict[str, np.ndarray]:
        return collect_outputs(
            self._forward,
            split.encoded,
            self._shape,
            self._batch_size,
            title="evaluate",
        )


class CollapseDetector:
    """Notices training that has collapsed to the same answer for everything.

    It speaks after the warm-up, when two evaluations in a row or the last one show it.

    Args:
        task: `Task`.
        targets: dict. Targets of the training examples.
        num_warmup_steps: int. Evaluations of the warm-up are not judged.
        num_train_steps: int. Steps of the whole run.
        class_weights: sequence of float. Weights of the classes in the loss; empty for
            equal ones.
        label_smoothing: float. Smoothing of the labels in the loss.
    """

    def __init__(
        self,
        task: Task,
        targets: Mapping[str, np.ndarray],
        num_warmup_steps: int,
        num_train_steps: int,
        class_weights: Sequence[float] = (),
        label_smoothing: float = 0.0,
    ):
        self.task = task
        self.num_warmup_steps = num_warmup_steps
        self.num_train_steps = num_train_steps
        self._bounds = loss_bounds(task, targets, class_weights, label_smoothing)

    def find(
        self,
        step: int,
        examples: Any,
        answers: Any,
        lines: Sequence[Mapping[str, Any]],
    ) -> tuple[str, bool]:
        """Judges an evaluation.

        Args:
            step: int. Step of the evaluation.
            examples: Evaluated examples.
            answers: Answers to them.
            lines: sequence of dict. Metrics on record, of all steps so far.

        Returns:
            What looks collapsed, or an empty string; and whether it is certain.
        """
        if step <= self.num_warmup_steps:
            return "", False
        reason = self.task.family.collapse(self.task, examples, answers)
        reason = reason or self._loss_at_chance(step, lines)
        before = [line for line in lines if line["split"] == "eval"]
        again = bool(before) and bool(before[-1].get("collapsed"))
        return reason, bool(reason) and (again or step == self.num_train_steps)

    def _loss_at_chance(self, step: int, lines: Sequence[Mapping[str, Any]]) -> str:
        since = max(self.num_warmup_steps, step // 2)
        losses = [
            line["loss"]
            for line in lines
            if line["split"] == "train" and line["step"] > since
        ]
        if self._bounds is None or not losses or 2 * step < self.num_train_steps:
            return ""
        mean = sum(losses) / len(losses)
        right, guessing = self._bounds
        if mean < right + _CHANCE * (guessing - right):
            return ""
        return f"the loss is {mean:.4f}, that of guessing {guessing:.4f}"


def loss_bounds(
    task: Task,
    targets: Mapping[str, np.ndarray],
    class_weights: Sequence[float] = (),
    label_smoothing: float = 0.0,
) -> tuple[float, float] | None:
    """Returns the losses of knowing every label, and only how frequent each class is.

    Without weights and smoothing these are 0 and the entropy of the classes.

    Args:
        task: `Task`.
        targets: dict. Targets of the training examples.
        class_weights: sequence of float. As for `CollapseDetector`.
        label_smoothing: float. As for `CollapseDetector`.

    Returns:
        Two floats, or None for tasks other than single-label classification of texts,
        and for those where good models are no better.
    """
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
