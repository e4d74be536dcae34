"""Pretraining objectives, by the name that `--objective` takes.

A step, a loop, a picture or a table calls the objective and names no loss itself. All
losses are sums and counts, so that they add up over micro-batches and replicas. They
are those of the original's `get_masked_lm_output` and `get_sentence_order_output`, of
google-research/bert's `get_next_sentence_output` and of facebookresearch/SpanBERT's
`pair_target_predictions`, added without weights, and those of google-research/electra's
`PretrainingModel`, with its weights.

Legend: `B` batch, `T` sequence, `P` predictions, `C` classes.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.layers.ops import masked_spans

# Of the histograms of logits: from -8 to 8, what is beyond counts in the outer ones.
_BINS, _BIN_WIDTH = 32, 0.5


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss of an objective: a classification of some places of a batch.

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
            it. With 0, the loss is the mean, and 0 where nothing has weight. The
            accuracy is the mean with an epsilon of 1, too.
        optional: bool. Whether a batch may lack the labels. It is then trained and
            measured without this term.
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
        """Returns what losses are divided by, from the sum of the weights."""
        return weight + self.epsilon if self.epsilon else ops.maximum(weight, 1.0)

    def rate(self, hits, weight):
        """Returns the accuracy, from the sums of the hits and of the weights."""
        if self.epsilon < 1:
            return hits / self.denominator(weight)
        return hits / ops.maximum(weight, 1.0)

    def sums(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict:
        """Returns float32 scalars by `sum_names`; see `Objective.sums`."""
        logits, labels = outputs[self.logits], batch[self.labels]
        weights = self.label_weights(batch)
        hits = ops.equal(ops.argmax(logits, -1), ops.cast(labels, "int32"))
        values = (
            ops.sum(cross_entropy(logits, labels) * weights),
            ops.sum(ops.cast(hits, "float32") * weights),
            ops.sum(weights),
        )
        return dict(zip(self.sum_names, values, strict=True))

    def count(self, batch: Mapping[str, np.ndarray], counts: dict) -> None:
        """Adds the weight of every label of a NumPy batch to `counts`."""
        labels = batch[self.labels].ravel()
        weights = ops.convert_to_numpy(self.label_weights(batch)).ravel()
        found, places = np.unique(labels, return_inverse=True)
        weight_of = np.bincount(places, weights, minlength=len(found))
        for label, weight in zip(found.tolist(), weight_of.tolist(), strict=True):
            counts[label] = counts.get(label, 0.0) + weight

    def details(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns what is measured besides loss and accuracy, by name."""
        return {}


@dataclasses.dataclass(frozen=True)
class SpanTargets:
    """Chooses the tokens that are predicted from the boundaries of their span.

    Args:
        max_span: int. Number of tokens of a span that are targets, from its first one.
        edges: str. `"original"` has no targets in a span that begins or ends an
            example's text: its neighbour is `[CLS]` or `[SEP]`. `"all"` has.
    """

    max_span: int = 15
    edges: str = "original"

    def __call__(self, batch: Mapping[str, Any]):
        """Returns the weights of a batch's masked tokens, float32 `[B, P]`."""
        positions = ops.cast(batch[features.MASK_POSITIONS], "int32")
        weights = ops.cast(batch[features.MASK_WEIGHTS], "float32")
        spans = masked_spans(positions, weights)
        # The example of each token from 1; 0 is padding, and what is outside the row.
        examples = batch.get(features.PACK_IDS, batch[features.PADDING_MASK])
        examples = ops.pad(ops.cast(examples, "int32"), ((0, 0), (2, 2)))
        last = ops.shape(examples)[1] - 1

        def example_at(places):
            return ops.take_along_axis(examples, ops.clip(places + 2, 0, last), axis=1)

        # With the original's edges, the neighbours are not the example's first or last
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

    What is right depends on the model: `labels` is one of its outputs, int `[...]`, 0
    or 1, as is `logits` `[...]`. The weights are still those of the batch, and must be
    in it. The sums include a histogram of the logits for each label, from which metrics
    are derived that are no means: precision, recall and the area under the ROC curve.
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

    def sums(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict:
        logits = ops.cast(outputs[self.logits], "float32")
        labels = ops.cast(outputs[self.labels], "float32")
        weights = self.label_weights(batch)
        # Stable for any logit: -log sigmoid(x) = log(1 + exp(-x)).
        losses = ops.softplus(logits) - logits * labels
        hits = ops.equal(logits > 0, labels > 0)
        # The bins meet at 0, which is in the lower one, as it does not mean yes.
        bins = ops.ceil(logits / _BIN_WIDTH) + (_BINS // 2 - 1)
        bins = ops.clip(bins, 0, _BINS - 1) + labels * _BINS
        bins = ops.where(ops.isnan(bins), 0.0, bins)
        flat = ops.reshape(ops.cast(bins, "int32"), (-1,))
        counts = ops.segment_sum(ops.reshape(weights, (-1,)), flat, 2 * _BINS)
        values = (
            ops.sum(losses * weights),
            ops.sum(ops.cast(hits, "float32") * weights),
            ops.sum(weights),
            *(counts[number] for number in range(2 * _BINS)),
        )
        return dict(zip(self.sum_names, values, strict=True))

    def count(self, batch: Mapping[str, np.ndarray], counts: dict) -> None:
        """Counts nothing: labels are not known before the model has made them."""

    def details(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns the accuracy of always giving the best same answer, and more.

        `<name>_baseline`, `<name>_share` (of the places whose label is 1),
        `<name>_precision`, `<name>_recall` and `<name>_auc`. The last takes logits
        within 0.5 of each other as equal, and those above 8 or below -8.
        """
        counts = np.array([sums[name] for name in self.sum_names[3:]], np.float64)
        no, yes = counts.reshape(2, _BINS)
        total, right = counts.sum(), yes[_BINS // 2 :].sum()
        found = right + no[_BINS // 2 :].sum()
        pairs = no.sum() * yes.sum()
        above = (yes * (no.cumsum() - no / 2)).sum()  # equal ones count half
        values = {
            "baseline": max(no.sum(), yes.sum()) / max(total, 1.0),
            "share": yes.sum() / max(total, 1.0),
            "precision": right / max(found, 1.0),
            "recall": right / max(yes.sum(), 1.0),
            "auc": above / pairs if pairs else 0.5,
        }
        return {f"{self.name}_{name}": float(x) for name, x in values.items()}


@dataclasses.dataclass(frozen=True)
class Objective:
    """The sum of its terms.

    Args:
        name: str. Its value of `--objective`.
        terms: tuple of `Term`.
        pair_policies: tuple of str. Values of `--pair_policy` of
            `create_pretraining_data` whose labels mean what this objective learns, or
            whose records have none.
        head: str. Head of the model that is trained, a name of `heads.HEADS`.
        settings: dict. What a run's settings are, where they are not given.
        chooses_masks: bool. Whether it cannot learn from records that hold masks,
            because the masks must be of a certain kind.
        sample_draws: bool. Whether the model draws tokens with numbers of the batch.
    """

    name: str
    terms: tuple[Term, ...]
    pair_policies: tuple[str, ...]
    head: str = "pretraining"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    chooses_masks: bool = False
    sample_draws: bool = False

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of what `sums` returns."""
        return tuple(name for term in self.terms for name in term.sum_names)

    @property
    def shown(self) -> dict[str, str]:
        """Metrics that a progress bar shows, with short names."""
        return {"loss": "loss"} | {
            f"{term.name}_accuracy": f"{term.name}_acc" for term in self.terms
        }

    def complete(self, settings: Any) -> Any:
        """Returns settings, a dataclass, with its own where they are None."""
        missing = (name for name in self.settings if getattr(settings, name) is None)
        values = {name: self.settings[name] for name in missing}
        return dataclasses.replace(settings, **values)

    def with_pair_weight(self, weight: float) -> "Objective":
        """Returns the objective with another factor of the loss about pairs."""
        terms = (
            dataclasses.replace(term, loss_weight=weight) if term.optional else term
            for term in self.terms
        )
        return dataclasses.replace(self, terms=tuple(terms))

    def with_span_targets(self, targets: SpanTargets) -> "Objective":
        """Returns the objective with other tokens predicted from their span's ends."""
        terms = (
            dataclasses.replace(term, weights=targets)
            if isinstance(term.weights, SpanTargets)
            else term
            for term in self.terms
        )
        return dataclasses.replace(self, terms=tuple(terms))

    def sums(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict:
        """Returns summed losses, hits and weights of a batch.

        Args:
            outputs: dict. Outputs of the model.
            batch: dict. The batch that the outputs belong to.

        Returns:
            dict of float32 scalars by `sum_names`; zeros for a term without labels.
        """
        sums = {}
        for term in self.terms:
            if not term.is_in(batch):
                sums |= {name: ops.zeros((), "float32") for name in term.sum_names}
                continue
            sums |= term.sums(outputs, batch)
        return sums

    def weights(self, batch: Mapping[str, Any]):
        """Returns the sum of the weights of every term, float32 `[number of terms]`."""
        return ops.stack(
            [
                ops.sum(term.label_weights(batch)) if term.is_in(batch) else 0.0
                for term in self.terms
            ]
        )

    def loss(self, sums: Mapping[str, Any], weights):
        """Returns the loss to differentiate: the share that some sums have in it.

        Args:
            sums: dict. `sums` of a part of a batch.
            weights: float32 `[number of terms]`. `weights` of the whole batch.
        """
        return sum(
            term.loss_weight * (sums[term.sum_names[0]] / term.denominator(weights[i]))
            for i, term in enumerate(self.terms)
            if term.loss_weight  # its weights would get gradients of zeros, and decay
        )

    def means(self, sums: Mapping[str, Any]) -> dict:
        """Returns losses and accuracies.

        Args:
            sums: dict. `sums`, possibly added up over batches.

        Returns:
            dict of float32 scalars: `loss`, and for each term `<name>_loss` and
            `<name>_accuracy`, which are 0 for a term without labels.
        """
        means, accuracies = {}, {}
        for term in self.terms:
            losses, hits, weight = (sums[name] for name in term.sum_names[:3])
            means[f"{term.name}_loss"] = losses / term.denominator(weight)
            accuracies[f"{term.name}_accuracy"] = term.rate(hits, weight)
        means |= accuracies
        loss = sum(term.loss_weight * means[f"{term.name}_loss"] for term in self.terms)
        return {"loss": loss, **means}

    def metrics(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns `means` and details of the terms as Python numbers.

        Optional terms without labels are left out.

        Args:
            sums: dict of NumPy scalars. `sums`, possibly added up over batches.
        """
        absent = [t for t in self.terms if t.optional and not sums[t.sum_names[2]]]
        left_out = {f"{t.name}_{kind}" for t in absent for kind in ("loss", "accuracy")}
        means = self.means(sums)
        found = {k: float(v) for k, v in means.items() if k not in left_out}
        for term in self.terms:
            found |= term.details(sums)
        return found

    def baselines(
        self, batches: Iterable[Mapping[str, np.ndarray]], max_batches: int = 0
    ) -> dict[str, float]:
        """Returns the accuracies of always giving the same answer.

        They are those of the most frequent label of the very batches, so a model has
        to beat the best constant answer possible.

        Args:
            batches: Iterable of dict. NumPy batches.
            max_batches: int. Maximum number of batches to read; 0 for all.

        Returns:
            dict. `<name>_baseline` for each term that has labels.
        """
        counts: dict[str, dict[int, float]] = {term.name: {} for term in self.terms}
        for number, batch in enumerate(batches, 1):
            for term in self.terms:
                if term.is_in(batch):
                    term.count(batch, counts[term.name])
            if number == max_batches:
                break
        return {
            f"{name}_baseline": max(found.values()) / sum(found.values())
            for name, found in counts.items()
            if sum(found.values())
        }

    def describe(self, step: int, values: Mapping[str, float]) -> str:
        """Returns one line for people about an evaluation.

        Args:
            step: int. Number of updates of the weights.
            values: dict. `metrics` of the evaluation, and `baselines`.
        """
        parts = [f"step {step}: eval loss {values['loss']:.3f}"]
        for term in self.terms:
            if f"{term.name}_accuracy" not in values:
                continue
            text = f"{term.title} accuracy {values[f'{term.name}_accuracy']:.3f}"
            if f"{term.name}_baseline" in values:
                text += f" (trivial baseline {values[f'{term.name}_baseline']:.3f})"
            parts.append(text)
        return ", ".join(parts)


def cross_entropy(logits, labels):
    """Returns the negative log-likelihood, in float32.

    Args:
        logits: `[..., C]`.
        labels: int `[...]`, values in `[0, C)`.

    Returns:
        float32 `[...]`.
    """
    logits = ops.cast(logits, "float32")
    picked = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(picked, -1)


MASKED_LM = Term(
    name="mlm",
    title="MLM",
    logits="mlm_logits",
    labels=features.MASK_IDS,
    weights=features.MASK_WEIGHTS,
    epsilon=1e-5,  # as in the original
)
SENTENCE_ORDER = Term(
    name="sop",
    title="SOP",
    logits="sop_logits",
    labels=features.SENTENCE_ORDER_LABELS,  # 0 in order, 1 swapped
    weights=features.SENTENCE_ORDER_WEIGHTS,
    optional=True,
)
# Batches have one place for the label of a pair, and models one head of two classes,
# both named after ALBERT's sentence order.
# 0 is the next sentence, 1 one from another document.
NEXT_SENTENCE = dataclasses.replace(SENTENCE_ORDER, name="nsp", title="NSP")

SPAN_BOUNDARY = Term(
    name="sbo",
    title="SBO",
    logits="sbo_logits",
    labels=features.MASK_IDS,
    weights=SpanTargets(),
    epsilon=1.0,  # as in the original
)

ALBERT = Objective(
    name="albert",
    terms=(MASKED_LM, SENTENCE_ORDER),
    pair_policies=("clean", "original", *features.UNLABELLED_POLICIES),
    settings={"masking": "albert"},
)
BERT = Objective(
    name="bert",
    terms=(MASKED_LM, NEXT_SENTENCE),
    pair_policies=("nsp", *features.UNLABELLED_POLICIES),
    settings={"masking": "bert"},
)
SPANBERT = Objective(
    name="spanbert",
    terms=(MASKED_LM, SPAN_BOUNDARY),
    pair_policies=features.UNLABELLED_POLICIES,
    head="span_boundary",
    settings={"masking": "spanbert"},
    chooses_masks=True,
)
ELECTRA = Objective(
    name="electra",
    terms=(
        dataclasses.replace(
            MASKED_LM,
            name="generator",
            title="generator",
            logits="generator_logits",
            epsilon=1e-6,
        ),
        Detection(
            name="rtd",
            title="RTD",
            logits="discriminator_logits",
            labels="replaced",
            weights=features.PADDING_MASK,  # every real token
            loss_weight=50.0,
            epsilon=1e-6,
        ),
    ),
    pair_policies=features.UNLABELLED_POLICIES,
    sample_draws=True,
)
OBJECTIVES = {one.name: one for one in (ALBERT, BERT, SPANBERT)}


def pretraining_loss(outputs: dict, batch: dict) -> dict:
    """Returns losses and accuracies of one batch, for loops of one's own.

    Args:
        outputs: dict. Outputs of `AlbertPretrainer`.
        batch: dict. Pretraining batch.

    Returns:
        dict of float32 scalars: `loss`, `mlm_loss`, `sop_loss`, `mlm_accuracy`,
        `sop_accuracy`.
    """
    return ALBERT.means(ALBERT.sums(outputs, batch))
