"""The losses that pretraining objectives consist of.

Legend: `B` batch, `T` sequence, `P` predictions, `C` classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.layers.gathering import gather_labels, masked_spans

# Bins of the histograms of logits, from -8 to 8; outliers count in the outer bins.
_BINS, _BIN_WIDTH = 32, 0.5


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss of an objective: a classification at some places of a batch.

    Args:
        name: str. Prefix of its metrics, such as "mlm" in "mlm_accuracy".
        title: str. Name for people, such as "MLM".
        logits: str. Model output `[..., C]`.
        labels: str. Key of the labels in a batch, int `[...]` in `[0, C)`.
        weights: str or callable. Key of their weights, `[...]`; in a batch without this
            key, every label has weight 1. Or a function that computes them from a
            batch, such as `SpanTargets`.
        loss_weight: float. Factor in the loss of the objective.
        epsilon: float. Added to the sum of the weights before the loss is divided by
            it. With 0, the loss is the mean, and 0 where nothing has weight. With 1,
            the accuracy is still a mean.
        optional: bool. Whether a batch may lack the labels; the term is then left out.
    """

    name: str
    title: str
    logits: str
    labels: str
    weights: "str | Callable[[Mapping[str, Any]], Any]"
    loss_weight: float = 1.0
    epsilon: float = 0.0
    optional: bool = False

    @property
    def sum_names(self) -> tuple[str, str, str]:
        """Names of the sums of the losses, of the hits and of the weights."""
        return f"{self.name}_loss_sum", f"{self.name}_hits", f"{self.name}_weight"

    @property
    def scores(self) -> dict[str, str]:
        """Titles, by name, of the metrics that show how well the term is learned."""
        return {f"{self.name}_accuracy": f"{self.title} accuracy"}

    def is_in(self, batch: Mapping[str, Any]) -> bool:
        """Returns whether a batch has labels of this term."""
        return not self.optional or self.labels in batch

    def label_weights(self, batch: Mapping[str, Any]):
        """Returns the weights of the labels, float32 `[...]`."""
        if callable(self.weights):
            return self.weights(batch)
        weights = batch.get(self.weights)
        if weights is None:
            return ops.ones(ops.shape(batch[self.labels]), "float32")
        return ops.cast(weights, "float32")

    def denominator(self, weight):
        """Returns the divisor of losses, from the sum of the weights."""
        return weight + self.epsilon if self.epsilon else ops.maximum(weight, 1.0)

    def rate(self, hits, weight):
        """Returns the accuracy, from the sums of the hits and of the weights."""
        if self.epsilon < 1:
            return hits / self.denominator(weight)
        return hits / ops.maximum(weight, 1.0)

    def sums(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict:
        """Returns float32 scalars by `sum_names`; see `Objective.sums`."""
        logits, labels = outputs[self.logits], batch[self.labels]
        hits = ops.equal(ops.argmax(logits, -1), ops.cast(labels, "int32"))
        return self.weighted(cross_entropy(logits, labels), hits, batch)

    def weighted(self, losses, hits, batch: Mapping[str, Any]) -> dict:
        """Returns the sums of losses float32 `[...]` and of hits bool `[...]`."""
        weights = self.label_weights(batch)
        values = (
            ops.sum(losses * weights),
            ops.sum(ops.cast(hits, "float32") * weights),
            ops.sum(weights),
        )
        return dict(zip(self.sum_names, values, strict=True))

    def count(self, batch: Mapping[str, np.ndarray], counts: dict) -> None:
        """Adds the weight of every label of a NumPy batch to `counts`."""
        labels = batch[self.labels].ravel()
        weights = ops.convert_to_numpy(self.label_weights(batch)).ravel()
        values, places = np.unique(labels, return_inverse=True)
        weight_of = np.bincount(places, weights, minlength=len(values))
        for label, weight in zip(values.tolist(), weight_of.tolist(), strict=True):
            counts[label] = counts.get(label, 0.0) + weight

    def details(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns measurements besides loss and accuracy, by name."""
        return {}


@dataclasses.dataclass(frozen=True)
class SpanTargets:
    """Chooses the tokens that are predicted from the boundaries of their span.

    They are the first `max_span` tokens of a span. `"original"` edges have no targets
    in a span that begins or ends an example's text, because its neighbour is `[CLS]` or
    `[SEP]`; `"all"` has.
    """

    max_span: int = 15
    edges: str = "original"

    def __call__(self, batch: Mapping[str, Any]):
        """Returns the weights of a batch's masked tokens, float32 `[B, P]`."""
        positions = ops.cast(batch[features.MASK_POSITIONS], "int32")
        weights = ops.cast(batch[features.MASK_WEIGHTS], "float32")
        spans = masked_spans(positions, weights)
        # The example of each token, from 1; 0 for padding and outside the row.
        examples = batch.get(features.PACK_IDS, batch[features.PADDING_MASK])
        examples = ops.pad(ops.cast(examples, "int32"), ((0, 0), (2, 2)))
        last = ops.shape(examples)[1] - 1

        def example_at(places):
            return ops.take_along_axis(examples, ops.clip(places + 2, 0, last), axis=1)

        # With the original's edges, neighbours must not be the example's first or last
        # token.
        margin = 1 if self.edges == "original" else 0
        own = example_at(positions)
        fits = spans.places < self.max_span
        for neighbour in (spans.before - margin, spans.after + margin):
            fits = ops.logical_and(fits, ops.equal(example_at(neighbour), own))
        return weights * ops.cast(fits, "float32")


@dataclasses.dataclass(frozen=True)
class Detection(Term):
    """A yes or no at each place, with sigmoid cross entropy.

    The labels depend on the model: `labels` is one of its outputs, int `[...]`, 0 or 1,
    as is `logits` `[...]`. The weights come from the batch, which must contain them.
    The sums include a histogram of the logits for each label, for metrics that are not
    means: precision, recall and the area under the ROC curve.
    """

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of the sums of the losses, hits and weights, and of both histograms."""
        histograms = (
            f"{self.name}_{kind}_{number}"
            for kind in ("no", "yes")
            for number in range(_BINS)
        )
        return (*super().sum_names, *histograms)

    @property
    def scores(self) -> dict[str, str]:
        """The accuracy and the area under the ROC curve."""
        return {**super().scores, f"{self.name}_auc": f"{self.title} AUC"}

    def sums(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict:
        logits = ops.cast(outputs[self.logits], "float32")
        labels = ops.cast(outputs[self.labels], "float32")
        weights = self.label_weights(batch)
        # Stable for any logit, because -log sigmoid(x) = log(1 + exp(-x)).
        losses = ops.softplus(logits) - logits * labels
        hits = ops.equal(logits > 0, labels > 0)
        # The bins meet at 0, which belongs to the lower one, as it does not mean yes.
        bins = ops.ceil(logits / _BIN_WIDTH) + (_BINS // 2 - 1)
        bins = ops.clip(bins, 0, _BINS - 1) + labels * _BINS
        bins = ops.where(ops.isnan(bins), 0.0, bins)
        # Compare with every bin: with so few, a GPU would add one number at a time.
        numbers = ops.arange(2 * _BINS, dtype="float32")
        is_in = ops.equal(ops.reshape(bins, (-1, 1)), numbers)
        counts = ops.sum(ops.where(is_in, ops.reshape(weights, (-1, 1)), 0.0), axis=0)
        values = (
            ops.sum(losses * weights),
            ops.sum(ops.cast(hits, "float32") * weights),
            ops.sum(weights),
            *(counts[number] for number in range(2 * _BINS)),
        )
        return dict(zip(self.sum_names, values, strict=True))

    def count(self, batch: Mapping[str, np.ndarray], counts: dict) -> None:
        """Counts nothing: labels are unknown before the model has computed them."""

    def details(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns the accuracy of the best constant answer, and more.

        The names are `<name>_baseline`, `<name>_share` (of places with label 1),
        `<name>_precision`, `<name>_recall` and `<name>_auc`. The last treats logits
        within 0.5 of each other as equal, as well as those above 8 or below -8.
        """
        counts = np.array([sums[name] for name in self.sum_names[3:]], np.float64)
        no, yes = counts.reshape(2, _BINS)
        total, right = counts.sum(), yes[_BINS // 2 :].sum()
        positives = right + no[_BINS // 2 :].sum()
        pairs = no.sum() * yes.sum()
        above = (yes * (no.cumsum() - no / 2)).sum()  # equal ones count half
        values = {
            "baseline": max(no.sum(), yes.sum()) / max(total, 1.0),
            "share": yes.sum() / max(total, 1.0),
            "precision": right / max(positives, 1.0),
            "recall": right / max(yes.sum(), 1.0),
            "auc": above / pairs if pairs else 0.5,
        }
        return {f"{self.name}_{name}": float(x) for name, x in values.items()}


def cross_entropy(logits, labels):
    """Returns the negative log-likelihood float32 `[...]` of int labels `[...]`."""
    logits = ops.cast(logits, "float32")
    picked = gather_labels(logits, labels)
    return ops.logsumexp(logits, axis=-1) - picked
