"""Pretraining objectives, by the name that `--objective` takes.

Steps, loops, pictures and tables call the objective and name no loss themselves. All
losses are sums and counts, so that they add up over micro-batches and replicas. They
follow the original's `get_masked_lm_output` and `get_sentence_order_output`,
google-research/bert's `get_next_sentence_output` and facebookresearch/SpanBERT's
`pair_target_predictions`, added without weights, and google-research/electra's
`PretrainingModel`, with its weights.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.objectives.distillation import Imitation, States
from albert_tf.objectives.recipes import OWN_SETTINGS
from albert_tf.objectives.terms import Detection, SpanTargets, Term


@dataclasses.dataclass(frozen=True)
class Objective:
    """The sum of its terms.

    Args:
        name: str. Its value of `--objective`.
        pair_policies: tuple of str. Values of `--pair_policy` of
            `create_pretraining_data` whose labels have the meaning that this objective
            learns, or whose records have none.
        head: str. Head of the model that is trained, a name of `heads.HEADS`.
        own_settings: tuple of str. Settings that no other objective reads.
        chooses_masks: bool. Whether it cannot learn from records that hold masks,
            because the masks must be of a certain kind.
        sample_draws: bool. Whether the model draws tokens with numbers of the batch.
    """

    name: str
    terms: tuple[Term, ...]
    pair_policies: tuple[str, ...]
    head: str = "pretraining"
    own_settings: tuple[str, ...] = ()
    chooses_masks: bool = False
    sample_draws: bool = False

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of the results of `sums`."""
        return tuple(name for term in self.terms for name in term.sum_names)

    @property
    def shown(self) -> dict[str, str]:
        """Metrics that a progress bar shows, with short names."""
        names = (name for term in self.terms for name in term.scores)
        return {"loss": "loss"} | {n: n.replace("accuracy", "acc") for n in names}

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Metrics by which models can be compared."""
        losses = (f"{term.name}_loss" for term in self.terms)
        return ("loss", *losses, *(name for t in self.terms for name in t.scores))

    def with_pair_weight(self, weight: float) -> "Objective":
        """Returns the objective with another weight of the loss about pairs."""
        terms = (
            dataclasses.replace(term, loss_weight=weight) if term.optional else term
            for term in self.terms
        )
        return dataclasses.replace(self, terms=tuple(terms))

    def with_teacher(
        self, weight: float, temperature: float, states: bool = False
    ) -> "Objective":
        """Returns the objective with a teacher's share of the masked tokens' loss.

        The teacher's part is the divergence of the tokens and, with `states`, the error
        of the hidden states, for both of which the outputs need a teacher's.
        """
        terms = [
            dataclasses.replace(term, loss_weight=1 - weight)
            if term.name == MASKED_LM.name
            else term
            for term in self.terms
        ]
        own = {**vars(MASKED_LM), "name": "teacher", "title": "teacher"}
        own["loss_weight"] = weight
        terms.append(Imitation(**own, temperature=temperature))
        if states:
            terms.append(dataclasses.replace(STATES, loss_weight=weight))
        return dataclasses.replace(self, terms=tuple(terms))

    def with_span_targets(self, targets: SpanTargets) -> "Objective":
        """Returns the objective with other tokens for the span boundary loss."""
        terms = (
            dataclasses.replace(term, weights=targets)
            if isinstance(term.weights, SpanTargets)
            else term
            for term in self.terms
        )
        return dataclasses.replace(self, terms=tuple(terms))

    def by_name(self, outputs: Any) -> Mapping[str, Any]:
        """Returns outputs as a dict; a model with a single output returns it alone."""
        if isinstance(outputs, Mapping):
            return outputs
        return {self.terms[0].logits: outputs}

    def sums(self, outputs: Any, batch: Mapping[str, Any]) -> dict:
        """Returns summed losses, hits and weights of a batch, float32 by `sum_names`.

        The outputs may be the logits of the first term alone; terms without labels get
        zeros.
        """
        outputs, sums = self.by_name(outputs), {}
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
        """Returns the loss to differentiate: the share of a part's sums in it.

        The weights, float32 `[number of terms]`, belong to the whole batch.
        """
        return sum(
            term.loss_weight * (sums[term.sum_names[0]] / term.denominator(weights[i]))
            for i, term in enumerate(self.terms)
            if term.loss_weight  # else its weights get zero gradients, and decay
        )

    def means(self, sums: Mapping[str, Any]) -> dict:
        """Returns losses and accuracies, float32 scalars, from `sums` of any batches.

        They are `loss`, and for each term `<name>_loss` and `<name>_accuracy`, which
        are 0 for a term without labels.
        """
        means, accuracies = {}, {}
        for term in self.terms:
            losses, hits, weight = (sums[name] for name in term.sum_names[:3])
            means[f"{term.name}_loss"] = losses / term.denominator(weight)
            if term.scores:
                accuracies[f"{term.name}_accuracy"] = term.rate(hits, weight)
        means |= accuracies
        loss = sum(term.loss_weight * means[f"{term.name}_loss"] for term in self.terms)
        return {"loss": loss, **means}

    def metrics(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns `means` and details of the terms as Python numbers.

        Optional terms without labels are left out.
        """
        absent = [t for t in self.terms if t.optional and not sums[t.sum_names[2]]]
        left_out = {f"{t.name}_{kind}" for t in absent for kind in ("loss", "accuracy")}
        means = self.means(sums)
        values = {k: float(v) for k, v in means.items() if k not in left_out}
        for term in self.terms:
            values |= term.details(sums)
        return values

    def baselines(
        self, batches: Iterable[Mapping[str, np.ndarray]], max_batches: int = 0
    ) -> dict[str, float]:
        """Returns the accuracies of the best constant answers, as `<name>_baseline`.

        They use the most frequent label of the same NumPy batches, at most
        `max_batches` (0 for all), so a model must beat the best possible constant
        answer. Terms without labels are left out.
        """
        counts: dict[str, dict[int, float]] = {term.name: {} for term in self.terms}
        for number, batch in enumerate(batches, 1):
            for term in self.terms:
                if term.is_in(batch):
                    term.count(batch, counts[term.name])
            if number == max_batches:
                break
        return {
            f"{name}_baseline": max(weight_of.values()) / sum(weight_of.values())
            for name, weight_of in counts.items()
            if sum(weight_of.values())
        }

    def describe(self, step: int, values: Mapping[str, float]) -> str:
        """Returns one line for people about an evaluation's metrics and `baselines`."""
        parts = [f"step {step}: eval loss {values['loss']:.3f}"]
        for term in self.terms:
            if f"{term.name}_accuracy" not in values:
                continue
            text = f"{term.title} accuracy {values[f'{term.name}_accuracy']:.3f}"
            if f"{term.name}_baseline" in values:
                text += f" (trivial baseline {values[f'{term.name}_baseline']:.3f})"
            parts.append(text)
        return ", ".join(parts)


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
    labels=features.SENTENCE_ORDER_LABELS,
    weights=features.SENTENCE_ORDER_WEIGHTS,
    optional=True,
)
# Batches have one key for pair labels, and models one head with two classes; both are
# named after ALBERT's sentence order.
NEXT_SENTENCE = dataclasses.replace(SENTENCE_ORDER, name="nsp", title="NSP")
# The meaning of the labels, by the name of the term.
PAIR_LABELS = {
    "sop": "0 the second segment follows the first, 1 they are swapped",
    "nsp": "0 the second segment follows the first, 1 it is of another document",
}

SPAN_BOUNDARY = Term(
    name="sbo",
    title="SBO",
    logits="sbo_logits",
    labels=features.MASK_IDS,
    weights=SpanTargets(),
    epsilon=1.0,  # as in the original
)

STATES = States(
    name="states",
    title="states",
    logits="states",
    labels=features.TOKEN_IDS,
    weights=features.PADDING_MASK,  # every real token
    epsilon=1e-6,
)

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
ROBERTA = Objective(
    name="roberta",
    terms=(MASKED_LM,),
    pair_policies=features.UNLABELLED_POLICIES,
    head="masked_lm",
)
SPANBERT = Objective(
    name="spanbert",
    terms=(MASKED_LM, SPAN_BOUNDARY),
    pair_policies=features.UNLABELLED_POLICIES,
    head="span_boundary",
    own_settings=OWN_SETTINGS["spanbert"],
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
    head="electra",
    own_settings=OWN_SETTINGS["electra"],
    sample_draws=True,
)
OBJECTIVES = {one.name: one for one in (ALBERT, BERT, ROBERTA, SPANBERT, ELECTRA)}


def pretraining_loss(outputs: dict, batch: dict) -> dict:
    """Returns losses and accuracies of one batch, for custom training loops.

    They are float32 scalars: `loss`, `mlm_loss`, `sop_loss`, `mlm_accuracy` and
    `sop_accuracy`. The outputs come from `AlbertPretrainer`.
    """
    return ALBERT.means(ALBERT.sums(outputs, batch))
