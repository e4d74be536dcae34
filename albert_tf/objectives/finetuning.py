"""Objectives of fine-tuning: one for each kind of answer, as sums and counts.

Sums and counts add up over micro-batches and replicas. `training.tensorflow.step` uses
these objectives like the ones of pretraining. All computations are in float32.

Legend: `U` examples, `C` labels, `K` choices, `L` words or layers, `B` rows, `T` tokens
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.errors import require
from albert_tf.heads import FROZEN, JOINT, NONE
from albert_tf.objectives.terms import cross_entropy

_MASKED = -1e30  # finite, so that no gradient becomes NaN


@dataclasses.dataclass(frozen=True)
class FinetuningObjective:
    """Means over the answers of a batch, which a subclass defines by `values`."""

    # Names of the means; the first is the loss that is differentiated.
    measures: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of the results of `sums`."""
        return (*(f"{name}_sum" for name in self.measures), "count")

    @property
    def shown(self) -> dict[str, str]:
        """Metrics for the progress bar, with short names."""
        accuracies = [name for name in self.measures if name.endswith("accuracy")]
        return {n: n.replace("accuracy", "acc") for n in ("loss", *accuracies[:2])}

    def values(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values to sum, by measure: float32 tensors of any shape."""
        raise NotImplementedError

    def weights(self, batch: Mapping[str, Any]):
        """Returns the number of answers as float32; parts of a batch add up."""
        return number_of(batch[features.LABELS])

    def sums(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the sums of a batch or a part of it, float32 by `sum_names`."""
        values = self.values(outputs, batch)
        sums = {f"{name}_sum": ops.sum(values[name]) for name in self.measures}
        return {**sums, "count": self.weights(batch)}

    def loss(self, sums: Mapping[str, Any], weights):
        """Returns the loss to differentiate: the share of a part's sums in it.

        The weights, a float32 scalar, belong to the whole batch.
        """
        return sums["loss_sum"] / ops.maximum(weights, 1.0)

    def metrics(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns the means as Python numbers; `sums` may span several batches."""
        count = max(float(sums["count"]), 1.0)
        return {name: float(sums[f"{name}_sum"]) / count for name in self.measures}

    def describe(self, step: int, values: Mapping[str, float]) -> str:
        """Returns one line for people about the metrics of an evaluation."""
        parts = [f"{k.replace('_', ' ')} {v:.3f}" for k, v in values.items()]
        return f"step {step}: eval {', '.join(parts)}"


def keep_unmasked(mask, logits):
    """Returns logits with -1e30 where the mask is 0."""
    return ops.where(ops.cast(mask, "bool"), logits, _MASKED)


def hits_of(logits, labels):
    """Returns 1 where the largest of logits `[..., C]` is the label, else 0."""
    hits = ops.equal(ops.argmax(logits, axis=-1), ops.cast(labels, "int32"))
    return ops.cast(hits, "float32")


def number_of(labels):
    """Returns the number of elements as a float32 scalar."""
    return ops.sum(ops.ones_like(labels, dtype="float32"))


@dataclasses.dataclass(frozen=True)
class _Classes(FinetuningObjective):
    """Weights `w` of classes, empty for all 1, and smoothing `s` in `[0, 1)`.

    The loss of an example is `w[y] * CE`, and the batch's is the sum divided by the
    number of examples, as in Keras's `fit` with `class_weight` (torch's
    `CrossEntropyLoss` divides by the sum of their weights). Smoothing follows Keras's
    `CategoricalCrossentropy`: the target is `1 - s + s / C` for the correct class and
    `s / C` for the others.
    """

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    def losses(self, logits, labels):
        """Returns the weighted cross-entropy float32 `[...]` of logits `[..., C]`."""
        logits = ops.cast(logits, "float32")
        losses = cross_entropy(logits, labels)
        if self.label_smoothing:
            # This is the mean of -log p over all classes.
            other = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
            losses += self.label_smoothing * (other - losses)
        if not self.class_weights:
            return losses
        weights = ops.convert_to_tensor(self.class_weights, dtype="float32")
        return losses * ops.take(weights, labels, axis=0)


@dataclasses.dataclass(frozen=True)
class SingleLabel(_Classes):
    """One class per example: softmax cross-entropy, the original's for GLUE.

    Outputs: logits `[U, C]`. Batch: `labels` int32 `[U]`.
    """

    def values(self, outputs, batch):
        labels = batch[features.LABELS]
        return {
            "loss": self.losses(outputs, labels),
            "accuracy": hits_of(outputs, labels),
        }


@dataclasses.dataclass(frozen=True)
class Tagging(_Classes):
    """One class per word: the mean over the labelled words of the whole batch.

    Outputs: logits `[U, L, C]`. Batch: `labels` int32 `[U, L]`, -1 for no label.
    """

    def weights(self, batch):
        return ops.sum(_labelled(batch))

    def values(self, outputs, batch):
        counted = _labelled(batch)
        labels = ops.maximum(batch[features.LABELS], 0)
        return {
            "loss": self.losses(outputs, labels) * counted,
            "accuracy": hits_of(outputs, labels) * counted,
        }


@dataclasses.dataclass(frozen=True)
class MultiLabel(FinetuningObjective):
    """Any number of classes per example: sigmoid cross-entropy, mean over all cells.

    Outputs: logits `[U, C]`. Batch: `labels` float32 `[U, C]`. `accuracy` is the share
    of cells on the correct side of 0.
    """

    def values(self, outputs, batch):
        logits = ops.cast(outputs, "float32")
        labels = ops.cast(batch[features.LABELS], "float32")
        hits = ops.equal(logits > 0, labels > 0.5)
        return {
            "loss": ops.binary_crossentropy(labels, logits, from_logits=True),
            "accuracy": ops.cast(hits, "float32"),
        }


@dataclasses.dataclass(frozen=True)
class Regression(FinetuningObjective):
    """A number per example: mean squared error, the original's for STS-B.

    Outputs: logits `[U, 1]`. Batch: `labels` float32 `[U]`.
    """

    measures: ClassVar[tuple[str, ...]] = ("loss", "mse")

    def values(self, outputs, batch):
        predictions = ops.reshape(ops.cast(outputs, "float32"), (-1,))
        errors = ops.square(predictions - ops.cast(batch[features.LABELS], "float32"))
        return {"loss": errors, "mse": errors}


@dataclasses.dataclass(frozen=True)
class Choice(FinetuningObjective):
    """One of the choices of each example: softmax over them, the original's for RACE.

    Outputs: logits `[U, K]`. Batch: `labels` int32 `[U]`; `choice_mask` int32 `[U, K]`
    where examples have different numbers of choices.
    """

    def values(self, outputs, batch):
        logits = ops.cast(outputs, "float32")
        if features.CHOICE_MASK in batch:
            logits = keep_unmasked(batch[features.CHOICE_MASK], logits)
        labels = batch[features.LABELS]
        return {
            "loss": cross_entropy(logits, labels),
            "accuracy": hits_of(logits, labels),
        }


@dataclasses.dataclass(frozen=True)
class Span(FinetuningObjective):
    """Start and end of an answer: the mean of two softmax cross-entropies.

    Outputs: `start_logits` and `end_logits` `[B, T]`. Batch: `start_positions` and
    `end_positions` int32 `[B]`, `padding_mask` `[B, T]`.

    With `mask_padding`, padding is left out of the softmax, so that the loss does not
    depend on the length that rows are padded to. The original and transformers compute
    it over all `T` positions.
    """

    mask_padding: bool = True
    measures: ClassVar[tuple[str, ...]] = ("loss", "start_accuracy", "end_accuracy")

    def weights(self, batch):
        return number_of(batch[features.START_POSITIONS])

    def values(self, outputs, batch):
        losses, values = [], {}
        for name, key in (
            ("start", features.START_POSITIONS),
            ("end", features.END_POSITIONS),
        ):
            logits = ops.cast(outputs[f"{name}_logits"], "float32")
            if self.mask_padding:
                logits = keep_unmasked(batch[features.PADDING_MASK], logits)
            losses.append(cross_entropy(logits, batch[key]))
            values[f"{name}_accuracy"] = hits_of(logits, batch[key])
        return {"loss": 0.5 * (losses[0] + losses[1]), **values}


@dataclasses.dataclass(frozen=True)
class BeamSpan(Span):
    """Start, end and answerability: the original's loss for SQuAD 2.0.

    `0.5 * (start + end) + 0.5 * sigmoid cross-entropy`, the first part over the tokens
    that the model did not mask.

    Outputs: as `AlbertBeamQuestionAnswering` with `start_positions`. Batch:
    `start_positions`, `end_positions` and `is_impossible` int32 `[B]`.
    """

    mask_padding: bool = dataclasses.field(default=False, init=False)
    measures: ClassVar[tuple[str, ...]] = (
        "loss",
        "span_loss",
        "answerability_loss",
        "start_accuracy",
        "end_accuracy",
        "answerability_accuracy",
    )

    def values(self, outputs, batch):
        values = super().values(outputs, batch)
        logits = ops.cast(outputs["cls_logits"], "float32")
        impossible = ops.cast(batch[features.IS_IMPOSSIBLE], "float32")
        losses = ops.binary_crossentropy(impossible, logits, from_logits=True)
        hits = ops.equal(logits > 0, impossible > 0.5)
        return {
            **values,
            "loss": values["loss"] + 0.5 * losses,
            "span_loss": values["loss"],
            "answerability_loss": losses,
            "answerability_accuracy": ops.cast(hits, "float32"),
        }


# Keyed by the head, or by the problem type of a text classifier.
_KINDS = {
    "single_label_classification": SingleLabel,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
    "token_classifier": Tagging,
    "multiple_choice": Choice,
    "question_answering": Span,
    "beam_question_answering": BeamSpan,
}


def for_task(
    head: str,
    problem_type: str | None = None,
    class_weights: Sequence[float] = (),
    label_smoothing: float = 0.0,
) -> FinetuningObjective:
    """Returns the objective that a head, named in `heads.HEADS`, is fine-tuned with.

    The problem type of a text classifier is None for a single label. Class weights are
    empty for all 1, smoothing is in `[0, 1)`. Raises `UsageError` if no objective fits,
    or its labels cannot be weighted or smoothed.
    """
    if head == "text_classifier":
        head = problem_type or "single_label_classification"
    require(head in _KINDS, f"objective: must be of {', '.join(_KINDS)}", head)
    kind = _KINDS[head]
    if issubclass(kind, _Classes):
        return kind(tuple(class_weights), label_smoothing)
    name = "class_weights" if class_weights else "label_smoothing"
    need = f"{name}: {head} has no exclusive classes; leave it out"
    require(not class_weights and not label_smoothing, need)
    return kind()


def _labelled(batch):
    return ops.cast(batch[features.LABELS] >= 0, "float32")


@dataclasses.dataclass(frozen=True)
class WithExits(FinetuningObjective):
    """The losses of all layers' classifiers in place of the last one's.

    "joint" is the mean of the `L` losses, weighted by the index of the layer (PABEE,
    arXiv:2006.04152, section 3.2). "frozen" is the mean of the `L - 1` exits' losses
    (the second stage of DeeBERT, arXiv:2004.12993, section 3.2), on which the rest of
    the model does not depend.

    Outputs: `logits`, as `task` takes them, and `exit_logits`, a tuple of such logits.
    Metrics besides `loss` and the task's: `final_loss`, of the last layer, and
    `exit_1_loss` and so on.
    """

    task: FinetuningObjective
    num_exits: int
    mode: str = JOINT

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the means; the first is the loss that is differentiated."""
        exits = [f"exit_{layer}_loss" for layer in range(1, self.num_exits + 1)]
        return (*self.task.measures, "final_loss", *exits)

    def weights(self, batch):
        return self.task.weights(batch)

    def values(self, outputs, batch):
        values = self.task.values(outputs["logits"], batch)
        losses = {
            f"exit_{layer}_loss": self.task.values(logits, batch)["loss"]
            for layer, logits in enumerate(outputs["exit_logits"], start=1)
        }
        final = values["loss"]
        parts = list(losses.values())
        if self.mode == FROZEN:
            loss = sum(parts) / len(parts)
        else:
            weighted = enumerate([*parts, final], start=1)
            total = sum(range(1, len(parts) + 2))
            loss = sum(layer * part for layer, part in weighted) / total
        return {**values, **losses, "loss": loss, "final_loss": final}


def with_exits(
    task: FinetuningObjective, num_exits: int, mode: str
) -> FinetuningObjective:
    """Returns the objective of a run, which is its task's if no exits are trained."""
    return task if mode == NONE else WithExits(task, num_exits, mode)
