"""Objectives of fine-tuning: one for each kind of answer, as sums and counts.

`training.tensorflow.step` takes these objectives as it takes those of pretraining. All
computations are in float32.

Legend: `U` examples, `C` labels, `K` choices, `L` words, `B` rows, `T` tokens.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from keras import ops

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.objectives.finetuning_base import (
    FinetuningObjective,
    hits_of,
    keep_unmasked,
    number_of,
)
from albert_tf.objectives.objective import cross_entropy


@dataclasses.dataclass(frozen=True)
class _Classes(FinetuningObjective):
    """Weights and smoothing of classes.

    The loss of an example is `w[y] * CE`, and the batch's is the sum divided by the
    number of examples, as in Keras's `fit` with `class_weight` (torch's
    `CrossEntropyLoss` divides by the sum of their weights). Smoothing is that of
    Keras's `CategoricalCrossentropy`: the target is `1 - s + s / C` for the correct
    class and `s / C` for the others.

    Args:
        class_weights: sequence of float. `w`, one per class; empty for all 1.
        label_smoothing: float in `[0, 1)`. `s`.
    """

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0

    def losses(self, logits, labels):
        """Returns the weighted cross-entropy float32 `[...]` of logits `[..., C]`."""
        logits = ops.cast(logits, "float32")
        losses = cross_entropy(logits, labels)
        if self.label_smoothing:
            # The mean over all classes of -log p.
            other = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
            losses += self.label_smoothing * (other - losses)
        if not self.class_weights:
            return losses
        if len(self.class_weights) != logits.shape[-1]:
            raise ValueError(
                f"class_weights: expected {logits.shape[-1]}, one per class, received "
                f"{len(self.class_weights)}"
            )
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

    Args:
        mask_padding: bool. Whether padding is left out of the softmax, so that the loss
            does not depend on the length that rows are padded to. The original and
            transformers compute it over all `T` positions.
    """

    mask_padding: bool = True
    measures: ClassVar[tuple[str, ...]] = ("loss", "start_accuracy", "end_accuracy")

    def weights(self, batch):
        return number_of(batch[features.START_POSITIONS])

    def values(self, outputs, batch):
        mask = batch[features.PADDING_MASK] if self.mask_padding else None
        return _span_values(outputs, batch, mask)


@dataclasses.dataclass(frozen=True)
class BeamSpan(Span):
    """Start, end and answerability: the original's loss for SQuAD 2.0.

    `0.5 * (start + end) + 0.5 * sigmoid cross-entropy`, the first part over the tokens
    that the model did not mask.

    Outputs: those of `AlbertBeamQuestionAnswering` with `start_positions`. Batch:
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

    @property
    def shown(self) -> dict[str, str]:
        """Metrics that a progress bar shows, with short names."""
        return {
            "loss": "loss",
            "start_accuracy": "start_acc",
            "end_accuracy": "end_acc",
        }


_BY_PROBLEM_TYPE = {
    "single_label_classification": SingleLabel,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
}
_BY_HEAD = {
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
    """Returns the objective that a head is fine-tuned with.

    Args:
        head: str. One of `heads.HEADS`.
        problem_type: str or None. Of a text classifier; None for a single label.
        class_weights: sequence of float. Weights of the classes; empty for all 1.
        label_smoothing: float in `[0, 1)`.

    Raises:
        UsageError: If the head or the problem type is unknown, if a number is out of
            range, or if the objective has no classes to weight or smooth.
    """
    kind = _BY_HEAD.get(head)
    if head == "text_classifier":
        kind = _BY_PROBLEM_TYPE.get(problem_type or "single_label_classification")
        if kind is None:
            raise UsageError(
                f"problem_type must be one of {', '.join(_BY_PROBLEM_TYPE)}, received "
                f"{problem_type!r}"
            )
    if kind is None:
        raise UsageError(
            f"head must be one of text_classifier, {', '.join(_BY_HEAD)}, received "
            f"{head!r}"
        )
    if not 0 <= label_smoothing < 1:
        raise UsageError(
            f"label_smoothing must be in [0, 1), received {label_smoothing!r}"
        )
    weights = tuple(float(weight) for weight in class_weights)
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise UsageError(
            "class_weights must be finite numbers of at least 0, received "
            f"{', '.join(map(str, weights))}"
        )
    if issubclass(kind, _Classes):
        return kind(class_weights=weights, label_smoothing=float(label_smoothing))
    for name, given in (
        ("class_weights", weights),
        ("label_smoothing", label_smoothing),
    ):
        if given:
            what = problem_type if head == "text_classifier" else head
            raise UsageError(f"{name}: {what} has no exclusive classes; leave it out")
    return kind()


def _span_values(outputs, batch, mask) -> dict[str, Any]:
    losses, values = [], {}
    for name, key in (
        ("start", features.START_POSITIONS),
        ("end", features.END_POSITIONS),
    ):
        logits = ops.cast(outputs[f"{name}_logits"], "float32")
        if mask is not None:
            logits = keep_unmasked(mask, logits)
        losses.append(cross_entropy(logits, batch[key]))
        values[f"{name}_accuracy"] = hits_of(logits, batch[key])
    return {"loss": 0.5 * (losses[0] + losses[1]), **values}


def _labelled(batch):
    return ops.cast(batch[features.LABELS] >= 0, "float32")
