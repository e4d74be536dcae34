"""Objectives of sentence embeddings, which compare the vectors of a whole batch.

An example consists of `K` texts: two that belong together (an anchor and its positive,
or two texts with a score), then negatives of the anchor. The loss of an example depends
on the vectors of all others, so that losses of parts of a batch do not add up. The
training step therefore calls `sums` with all vectors of all devices and micro-batches
(`gathered`). Losses and gradients equal sentence-transformers 6.2
(`tests/golden/README.md`). All computations are in float32.

Legend: `U` examples, `K` texts of an example, `E` numbers of a vector, `N` candidates
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from albert_tf import features
from albert_tf.errors import require
from albert_tf.layers.pooling import unit_length
from albert_tf.objectives.finetuning import FinetuningObjective, hits_of, keep_unmasked
from albert_tf.objectives.terms import cross_entropy

DIRECTIONS = ("one", "both")
KINDS = ("cosine", "mse")
_GATHERED = features.LABELS, features.TEXT_IDS, features.CHOICE_MASK


@dataclasses.dataclass(frozen=True)
class EmbeddingObjective(FinetuningObjective):
    """Means over the examples of a batch whose first two texts are there.

    Outputs: vectors `[U, K, E]` of the whole batch. Batch: `choice_mask` int32
    `[U, K]`, 1 where there is a text; `text_ids` int32 `[U, K]`, equal numbers for
    equal texts; `labels`, where the loss needs them. `values` are per example, `[U]`.
    """

    # Features that `sums` reads of the whole batch.
    gathered: ClassVar[tuple[str, ...]] = _GATHERED
    measures: ClassVar[tuple[str, ...]] = ("loss",)

    def weights(self, batch):
        return ops.sum(_complete(batch))

    def sums(self, outputs, batch):
        values, counted = self.values(outputs, batch), _complete(batch)
        sums = {f"{n}_sum": ops.sum(values[n] * counted) for n in self.measures}
        return {**sums, "count": ops.sum(counted)}


@dataclasses.dataclass(frozen=True)
class Contrastive(EmbeddingObjective):
    """Finds the positive of an anchor: softmax cross-entropy over cosines.

    The candidates are the positives and negatives of all examples, except for texts
    equal to the anchor or to a positive that the batch pairs with it, other than the
    own positive. `accuracy` is the share of anchors whose positive ranks first.
    sentence-transformers' `MultipleNegativesRankingLoss`; with "both" directions, also
    which anchor belongs to a positive, as in `MultipleNegativesSymmetricRankingLoss`.
    """

    scale: float = 20.0
    directions: str = "one"
    measures: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    def __post_init__(self):
        require(self.scale > 0, "scale: must be above 0", self.scale)
        expected = f"directions: must be of {', '.join(DIRECTIONS)}"
        require(self.directions in DIRECTIONS, expected, self.directions)

    def values(self, outputs, batch):
        vectors = unit_length(outputs)
        candidates = _candidates(vectors)
        scores = self.scale * ops.matmul(vectors[:, 0], ops.transpose(candidates))
        scores = keep_unmasked(_compared(batch), scores)
        count = ops.shape(vectors)[0]
        own = ops.arange(count, dtype="int32")
        loss = cross_entropy(scores, own)
        if self.directions == "both":
            backwards = cross_entropy(ops.transpose(scores[:, :count]), own)
            loss = (loss + backwards) / 2
        return {"loss": loss, "accuracy": hits_of(scores, own)}


@dataclasses.dataclass(frozen=True)
class CoSent(EmbeddingObjective):
    """The order of scores: sentence-transformers' `CoSENTLoss`.

    `log(1 + sum(exp(scale * (cos_i - cos_j))))` over all pairs of examples whose labels
    say that `i` is less similar than `j`. Batch: `labels` float32 `[U]`.
    """

    scale: float = 20.0

    def __post_init__(self):
        require(self.scale > 0, "scale: must be above 0", self.scale)

    def values(self, outputs, batch):
        scores = self.scale * _cosines(outputs)
        labels = ops.cast(batch[features.LABELS], "float32")
        counted = _complete(batch) > 0
        less = ops.less(labels[:, None], labels[None, :])
        less &= counted[:, None] & counted[None, :]
        apart = keep_unmasked(less, scores[:, None] - scores[None, :])
        apart = ops.concatenate([ops.zeros_like(scores[:1]), ops.reshape(apart, (-1,))])
        return {"loss": ops.logsumexp(apart) * ops.ones_like(scores)}


@dataclasses.dataclass(frozen=True)
class CosineMse(EmbeddingObjective):
    """Squared error of the cosine: sentence-transformers' `CosineSimilarityLoss`.

    Batch: `labels` float32 `[U]`.
    """

    def values(self, outputs, batch):
        labels = ops.cast(batch[features.LABELS], "float32")
        return {"loss": ops.square(_cosines(outputs) - labels)}


@dataclasses.dataclass(frozen=True)
class Distill(EmbeddingObjective):
    """Vectors of a teacher: sentence-transformers' `EmbedDistillLoss`.

    "cosine" is `1 - cosine`, "mse" the mean squared error. Batch: `labels` float32
    `[U, E]`, the teacher's vectors of the first texts.
    """

    kind: str = "cosine"

    def __post_init__(self):
        require(self.kind in KINDS, f"kind: must be of {', '.join(KINDS)}", self.kind)

    def values(self, outputs, batch):
        vectors = ops.cast(outputs[:, 0], "float32")
        teacher = ops.cast(batch[features.LABELS], "float32")
        if self.kind == "mse":
            return {"loss": ops.mean(ops.square(vectors - teacher), axis=-1)}
        return {
            "loss": 1.0 - ops.sum(unit_length(vectors) * unit_length(teacher), axis=-1)
        }


@dataclasses.dataclass(frozen=True)
class Matryoshka(EmbeddingObjective):
    """Loss of the first `dims` numbers: sentence-transformers' `MatryoshkaLoss`.

    The loss is the sum of the losses of all dimensions, by default each with weight 1.
    Other measures are of the largest dimension. A teacher's vectors are cut, too.
    """

    objective: EmbeddingObjective
    dims: tuple[int, ...]
    dim_weights: tuple[float, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the means; the first is the loss that is differentiated."""
        return self.objective.measures

    def values(self, outputs, batch):
        weights = self.dim_weights or (1.0,) * len(self.dims)
        parts = []
        for dim, weight in sorted(zip(self.dims, weights, strict=True)):
            cut = dict(batch)
            if len(getattr(batch.get(features.LABELS), "shape", ())) > 1:
                cut[features.LABELS] = batch[features.LABELS][:, :dim]
            values = self.objective.values(unit_length(outputs[..., :dim]), cut)
            parts.append(weight * values["loss"])
        return {**values, "loss": sum(parts)}


@dataclasses.dataclass(frozen=True)
class AdaptiveLayer(EmbeddingObjective):
    """Loss of the vectors after several layers: `AdaptiveLayerLoss`.

    The loss of the last of `layers`, the mean of the losses of the others, and the sum
    of their divergences from the last one: 0.3 times the Kullback-Leibler divergence of
    the softmaxes of the vectors divided by 0.3. sentence-transformers draws layers for
    each step; here all of `layers` are read at each.

    Outputs: a tuple of vectors, one for each of `layers`. Measures in addition to the
    last layer's: `final_loss`, and `layer_1_loss` and so on of the others.
    """

    objective: EmbeddingObjective
    layers: tuple[int, ...]
    temperature: ClassVar[float] = 0.3

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the means; the first is the loss that is differentiated."""
        others = [f"layer_{layer}_loss" for layer in self.layers[:-1]]
        return (*self.objective.measures, "final_loss", *others)

    def values(self, outputs, batch):
        *others, last = (ops.cast(vectors, "float32") for vectors in outputs)
        values = self.objective.values(last, batch)
        final = loss = values["loss"]
        target = ops.stop_gradient(ops.log_softmax(last / self.temperature))
        exist = ops.cast(batch[features.CHOICE_MASK], "float32")
        losses = {}
        for layer, vectors in zip(self.layers[:-1], others, strict=True):
            part = self.objective.values(vectors, batch)["loss"]
            losses[f"layer_{layer}_loss"] = part
            apart = target - ops.log_softmax(vectors / self.temperature)
            apart = ops.sum(ops.exp(target) * apart, axis=-1) * exist
            apart = ops.sum(apart) / ops.maximum(ops.sum(exist), 1.0)
            loss += part / len(others) + self.temperature * apart
        return {**values, **losses, "loss": loss, "final_loss": final}


def _cosines(vectors):
    vectors = unit_length(vectors)
    return ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def _complete(batch):
    """Returns 1 for each example whose first two texts are there, float32 `[U]`."""
    return ops.cast(ops.min(batch[features.CHOICE_MASK][:, :2], axis=1), "float32")


def _candidates(values):
    """Returns all but the first of `[U, K, ...]`, flat: the positives come first."""
    values = ops.swapaxes(values[:, 1:], 0, 1)
    return ops.reshape(values, (-1, *values.shape[2:]))


def _compared(batch):
    """Returns a mask of the candidates of each anchor, bool `[U, N]`."""
    ids, exist = batch[features.TEXT_IDS], batch[features.CHOICE_MASK]
    anchors, texts = ids[:, :1], _candidates(ids)
    equal = ops.cast(anchors == ops.transpose(anchors), "float32")
    paired = ops.matmul(equal, ops.cast(ids[:, 1:2] == texts, "float32"))
    same = (texts == anchors) | (paired > 0)
    compared = ~same & (_complete(batch)[:, None] > 0) & (_candidates(exist) > 0)
    own = ops.arange(ops.shape(ids)[0], dtype="int32")[:, None]
    return compared | (own == ops.arange(ops.shape(texts)[0], dtype="int32"))


class _OfPairs(keras.losses.Loss):
    """A loss for `fit`, from vectors `[U, K, E]`; its `objective` defines it."""

    objective: EmbeddingObjective
    ignores_labels = False

    def call(self, y_true, y_pred):
        """Returns the loss of each example, float32 `[U]`."""
        shape = tuple(y_pred.shape)
        expected = "y_pred: must be [examples, texts, numbers], of 2 texts or more"
        require(len(shape) == 3 and shape[1] > 1, expected, shape)
        exist = ops.ones_like(y_pred[:, :, 0], dtype="int32")
        number = ops.arange(ops.shape(y_pred)[0] * shape[1], dtype="int32")
        batch: Mapping[str, Any] = {
            features.LABELS: ops.reshape(y_true, (-1,)),
            features.CHOICE_MASK: exist,
            features.TEXT_IDS: ops.reshape(number, ops.shape(exist)),
        }
        return self.objective.values(y_pred, batch)["loss"]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that the loss can be created with."""
        return super().get_config() | dataclasses.asdict(self.objective)


@keras.saving.register_keras_serializable("albert_tf")
class ContrastiveLoss(_OfPairs):
    """Finds the positive of each anchor among the candidates of the batch, for `fit`.

    The softmax cross-entropy of scaled cosines, with the positives and negatives of all
    examples as candidates: sentence-transformers' `MultipleNegativesRankingLoss`. Texts
    that occur in several examples are compared with each other, so put them into
    different batches.

    Args:
        scale: float. Factor of the cosines, 1 divided by the temperature.
        directions: str. "one" finds the positive of an anchor, "both" also the anchor
            of a positive, and the loss is the mean.
        **options: `name` and `reduction` of a Keras loss.

    Call arguments:
        y_true: Ignored, with any numbers, one for each example.
        y_pred: float `[U, K, E]`. Vectors of anchor, positive, and any negatives.

    Raises:
        UsageError: If an argument or the shape of `y_pred` is outside these limits.

    Example:
        >>> import albert_tf
        >>> import numpy as np
        >>> loss = albert_tf.ContrastiveLoss(scale=5.0)
        >>> pairs = np.array([[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.6, 0.8]]])
        >>> print(f"{float(loss(np.zeros(2), pairs)):.4f}")
        0.3133
    """

    ignores_labels = True

    def __init__(self, scale: float = 20.0, directions: str = "one", **options: Any):
        super().__init__(**{"name": "contrastive_loss", **options})
        self.objective = Contrastive(scale, directions)


@keras.saving.register_keras_serializable("albert_tf")
class CoSentLoss(_OfPairs):
    """Orders pairs of texts by their scores, for `fit`.

    sentence-transformers' `CoSENTLoss`: only the order of the scores matters. It is one
    number for the batch, which each example is given.

    Args:
        scale: float. Factor of the cosines.
        **options: `name` and `reduction` of a Keras loss.

    Call arguments:
        y_true: float `[U]`. Scores of the pairs, in any range.
        y_pred: float `[U, 2, E]`. Vectors of the two texts.

    Raises:
        UsageError: If an argument or the shape of `y_pred` is outside these limits.

    Example:
        >>> import albert_tf
        >>> import numpy as np
        >>> loss = albert_tf.CoSentLoss(scale=5.0)
        >>> pairs = np.array([[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.8, 0.6]]])
        >>> print(f"{float(loss(np.array([4.5, 1.0]), pairs)):.4f}")
        0.3133
    """

    def __init__(self, scale: float = 20.0, **options: Any):
        super().__init__(**{"name": "cosent_loss", **options})
        self.objective = CoSent(scale)


@keras.saving.register_keras_serializable("albert_tf")
class CosineSimilarityLoss(_OfPairs):
    """Squared error of the cosine of two texts, for `fit`.

    sentence-transformers' `CosineSimilarityLoss`.

    Args:
        **options: `name` and `reduction` of a Keras loss.

    Call arguments:
        y_true: float `[U]`. Scores of the pairs, from -1 to 1.
        y_pred: float `[U, 2, E]`. Vectors of the two texts.

    Raises:
        UsageError: If the shape of `y_pred` is another one.

    Example:
        >>> import albert_tf
        >>> import numpy as np
        >>> pairs = np.array([[[1.0, 0.0], [0.8, 0.6]]])
        >>> loss = albert_tf.CosineSimilarityLoss()
        >>> print(f"{float(loss(np.array([0.5]), pairs)):.4f}")
        0.0900
    """

    def __init__(self, **options: Any):
        super().__init__(**{"name": "cosine_similarity_loss", **options})
        self.objective = CosineMse()
