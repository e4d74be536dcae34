"""Metrics of training (sums and counts) and of fine-tuning tasks (dicts of floats).

Training metrics are pairs (sum, count), which add up over batches, replicas and hosts
where means do not; `StreamingMeans` collects them. Task metrics are scikit-learn's and
scipy's own, imported when first used.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from albert_tf.errors import DataError, UsageError

_AVERAGES = ("binary", "macro", "micro", "weighted")


def masked_sum(values, weights=None) -> tuple[Any, Any]:
    """Weighted sum and sum of weights.

    Args:
        values: `[...]`.
        weights: `[...]`, 0 where a value does not count; None counts all.

    Returns:
        (sum, count), float32 scalars.
    """
    values = ops.cast(values, "float32")
    if weights is None:
        weights = ops.ones_like(values)
    weights = ops.cast(weights, "float32")
    # Not a product alone: 0 * nan at a place that does not count would be nan.
    counted = ops.where(weights > 0, values, ops.zeros_like(values))
    return ops.sum(counted * weights), ops.sum(weights)


def masked_accuracy(logits, labels, weights=None) -> tuple[Any, Any]:
    """How often the highest logit is the label's.

    Args:
        logits: `[..., C]`.
        labels: int `[...]`, values in `[0, C)`.
        weights: `[...]` or None.

    Returns:
        (sum, count), float32 scalars.
    """
    return masked_sum(
        ops.equal(ops.argmax(logits, -1), ops.cast(labels, "int32")), weights
    )


def masked_top_k_accuracy(logits, labels, weights=None, k: int = 5) -> tuple[Any, Any]:
    """How often fewer than k logits are higher than the label's.

    Equal logits count for the label. Arguments and result as `masked_accuracy`; k may
    exceed the number of classes.
    """
    if k < 1:
        raise UsageError(f"k must be >= 1, received {k}")
    labels = ops.expand_dims(ops.cast(labels, "int32"), -1)
    higher = logits > ops.take_along_axis(logits, labels, axis=-1)
    return masked_sum(ops.sum(ops.cast(higher, "int32"), -1) < k, weights)


class StreamingMeans:
    """Means of named quantities over any number of batches, in float64.

    ```python
    means = StreamingMeans()
    for batch in batches:
        means.update({"accuracy": masked_accuracy(logits, labels, weights)})
    means.result()  # {"accuracy": 0.5}
    ```
    """

    def __init__(self):
        self._totals: dict[str, list[float]] = {}

    def update(self, pairs: Mapping[str, tuple[Any, Any]]) -> None:
        """Adds one (sum, count) to each name."""
        for name, (total, count) in pairs.items():
            sums = self._totals.setdefault(name, [0.0, 0.0])
            sums[0] += float(ops.convert_to_numpy(total))
            sums[1] += float(ops.convert_to_numpy(count))

    def result(self) -> dict[str, float]:
        """Returns the mean of every name; nan where nothing was counted."""
        return {
            name: total / count if count else math.nan
            for name, (total, count) in self._totals.items()
        }

    def reset(self) -> None:
        """Forgets everything."""
        self._totals.clear()


def classification_metrics(
    labels: Sequence[int], predictions: Sequence[int], average: str = "binary"
) -> dict[str, float]:
    """Accuracy, F1, precision, recall and Matthews correlation.

    Args:
        labels: int `[N]`.
        predictions: int `[N]`, class indices, not logits.
        average: Of F1, precision and recall: `"binary"` (of class 1; labels and
            predictions are 0 or 1), `"macro"`, `"micro"` or `"weighted"`.

    Returns:
        dict with `accuracy, f1, precision, recall, matthews`. A ratio 0/0 is 0.

    Raises:
        DataError: If there are no examples, or not as many predictions as labels, or
            more than two classes with `"binary"`.
        UsageError: If `average` is unknown.
    """
    from sklearn import metrics

    if average not in _AVERAGES:
        raise UsageError(f"average must be one of {_AVERAGES}, received {average!r}")
    labels, predictions = _arrays(labels, predictions)
    classes = sorted(set(labels.tolist()) | set(predictions.tolist()))
    if average == "binary" and not set(classes) <= {0, 1}:
        raise DataError(
            f"labels and predictions must be 0 or 1 for binary metrics, found {classes}"
        )
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        labels, predictions, average=average, zero_division=0
    )
    return {
        "accuracy": float(metrics.accuracy_score(labels, predictions)),
        "f1": float(f1),
        "precision": float(precision),
        "recall": float(recall),
        "matthews": _matthews(labels, predictions),
    }


def regression_metrics(
    labels: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Pearson and Spearman correlation, their mean, and the mean squared error.

    Args:
        labels: float `[N]`.
        predictions: float `[N]`.

    Returns:
        dict with `pearson, spearman, pearson_spearman, mse`. Correlations are nan if
        labels or predictions are all the same, or if there is only one.

    Raises:
        DataError: If there are no examples, or not as many predictions as labels.
    """
    from scipy import stats

    labels, predictions = _arrays(labels, predictions, "float64")
    pearson = spearman = math.nan
    # scipy warns about constants and about single examples; nan says the same.
    if np.ptp(labels) and np.ptp(predictions):
        pearson = float(stats.pearsonr(labels, predictions).statistic)
        spearman = float(stats.spearmanr(labels, predictions).statistic)
    return {
        "pearson": pearson,
        "spearman": spearman,
        "pearson_spearman": (pearson + spearman) / 2,
        "mse": float(np.mean((labels - predictions) ** 2)),
    }


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn import metrics

    with warnings.catch_warnings():
        # Only one class in labels and predictions is 0/0, defined as 0.
        warnings.filterwarnings("ignore", "A single label was found", UserWarning)
        return float(metrics.matthews_corrcoef(labels, predictions))


def _arrays(labels, predictions, dtype=None) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels, dtype), np.asarray(predictions, dtype)
    if labels.ndim != 1 or labels.shape != predictions.shape or not labels.size:
        raise DataError(
            "labels and predictions must be two lists of the same length >= 1, "
            f"received shapes {labels.shape} and {predictions.shape}"
        )
    return labels, predictions
