"""Pretraining objectives, by the name that `--objective` takes.

A step, a loop, a picture or a table calls the objective and names no loss itself. All
losses are sums and counts, so that they add up over micro-batches and replicas. They
are those of the original's `get_masked_lm_output` and `get_sentence_order_output`, and
of google-research/bert's `get_next_sentence_output`, added without weights.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from keras import ops

from albert_tf import features


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss of an objective: a classification of some places of a batch.

    Args:
        name: str. Prefix of its metrics, such as "mlm" in "mlm_accuracy".
        title: str. Name for people, such as "MLM".
        logits: str. Model output `[..., C]`.
        labels: str. Key of the labels in a batch, int `[...]` in `[0, C)`.
        weights: str. Key of their weights, `[...]`. In a batch without this key, every
            label has weight 1.
        loss_weight: float. Factor in the loss of the objective.
        epsilon: float. Added to the sum of the weights before the loss is divided by
            it. With 0, the loss is the mean, and 0 where nothing has weight.
        optional: bool. Whether a batch may lack the labels. It is then trained and
            measured without this term.
    """

    name: str
    title: str
    logits: str
    labels: str
    weights: str
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
        weights = batch.get(self.weights)
        if weights is None:
            return ops.ones(ops.shape(batch[self.labels]), "float32")
        return ops.cast(weights, "float32")

    def denominator(self, weight):
        """Returns what sums are divided by, from the sum of the weights."""
        return weight + self.epsilon if self.epsilon else ops.maximum(weight, 1.0)


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
    """

    name: str
    terms: tuple[Term, ...]
    pair_policies: tuple[str, ...]
    head: str = "pretraining"

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

    def with_pair_weight(self, weight: float) -> "Objective":
        """Returns the objective with another factor of the loss about pairs."""
        terms = (
            dataclasses.replace(term, loss_weight=weight) if term.optional else term
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
            logits, labels = outputs[term.logits], batch[term.labels]
            weights = term.label_weights(batch)
            hits = ops.equal(ops.argmax(logits, -1), ops.cast(labels, "int32"))
            values = (
                ops.sum(cross_entropy(logits, labels) * weights),
                ops.sum(ops.cast(hits, "float32") * weights),
                ops.sum(weights),
            )
            sums |= zip(term.sum_names, values, strict=True)
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
        means = {}
        for kind, number in (("loss", 0), ("accuracy", 1)):
            for term in self.terms:
                names = term.sum_names
                denominator = term.denominator(sums[names[2]])
                means[f"{term.name}_{kind}"] = sums[names[number]] / denominator
        loss = sum(term.loss_weight * means[f"{term.name}_loss"] for term in self.terms)
        return {"loss": loss, **means}

    def metrics(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns `means` as Python numbers, leaving out optional terms without labels.

        Args:
            sums: dict of NumPy scalars. `sums`, possibly added up over batches.
        """
        absent = [t for t in self.terms if t.optional and not sums[t.sum_names[2]]]
        left_out = {f"{t.name}_{kind}" for t in absent for kind in ("loss", "accuracy")}
        means = self.means(sums)
        return {k: float(v) for k, v in means.items() if k not in left_out}

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
                    _count(term, batch, counts[term.name])
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


def _count(term: Term, batch: Mapping[str, np.ndarray], counts: dict) -> None:
    """Adds the weight of every label of a batch to `counts`."""
    labels = batch[term.labels].ravel()
    weights = batch.get(term.weights)
    weights = np.ones(len(labels)) if weights is None else weights.ravel()
    found, places = np.unique(labels, return_inverse=True)
    weight_of = np.bincount(places, weights, minlength=len(found))
    for label, weight in zip(found.tolist(), weight_of.tolist(), strict=True):
        counts[label] = counts.get(label, 0.0) + weight


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

ALBERT = Objective(
    name="albert",
    terms=(MASKED_LM, SENTENCE_ORDER),
    pair_policies=("clean", "original", *features.UNLABELLED_POLICIES),
)
BERT = Objective(
    name="bert",
    terms=(MASKED_LM, NEXT_SENTENCE),
    pair_policies=("nsp", *features.UNLABELLED_POLICIES),
)
OBJECTIVES = {one.name: one for one in (ALBERT, BERT)}


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
