"""What all objectives of fine-tuning share: sums over a batch and a count.

Both add up over micro-batches and replicas.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from keras import ops

from albert_tf import features

_MASKED = -1e30  # finite, so that no gradient becomes nan


@dataclasses.dataclass(frozen=True)
class FinetuningObjective:
    """Means over the answers of a batch; a subclass says which, by `values`."""

    # Names of the means, the loss that is differentiated first.
    measures: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of what `sums` returns."""
        return (*(f"{name}_sum" for name in self.measures), "count")

    @property
    def shown(self) -> dict[str, str]:
        """Metrics that a progress bar shows, with short names."""
        accuracies = [name for name in self.measures if name.endswith("accuracy")]
        return {n: n.replace("accuracy", "acc") for n in ("loss", *accuracies)}

    def values(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what is summed, by measure: float32 tensors of any shape."""
        raise NotImplementedError

    def weights(self, batch: Mapping[str, Any]):
        """Returns the number of answers of a batch, which losses are divided by.

        Args:
            batch: dict. A batch, or a part of it: the numbers of the parts add up.

        Returns:
            float32 scalar.
        """
        return number_of(batch[features.LABELS])

    def sums(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the sums of a batch or of a part of it.

        Args:
            outputs: Outputs of the model.
            batch: dict. The batch that the outputs belong to.

        Returns:
            dict of float32 scalars by `sum_names`.
        """
        values = self.values(outputs, batch)
        sums = {f"{name}_sum": ops.sum(values[name]) for name in self.measures}
        return {**sums, "count": self.weights(batch)}

    def loss(self, sums: Mapping[str, Any], weights):
        """Returns the loss to differentiate: the share that some sums have in it.

        Args:
            sums: dict. `sums` of a part of a batch.
            weights: float32 scalar. `weights` of the whole batch.
        """
        return sums["loss_sum"] / ops.maximum(weights, 1.0)

    def metrics(self, sums: Mapping[str, np.float32]) -> dict[str, float]:
        """Returns the means, as Python numbers.

        Args:
            sums: dict of scalars. `sums`, possibly added up over batches.
        """
        count = max(float(sums["count"]), 1.0)
        return {name: float(sums[f"{name}_sum"]) / count for name in self.measures}

    def describe(self, step: int, values: Mapping[str, float]) -> str:
        """Returns one line for people about an evaluation.

        Args:
            step: int. Number of updates of the weights.
            values: dict. Metrics of the evaluation, the objective's or the task's.
        """
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
