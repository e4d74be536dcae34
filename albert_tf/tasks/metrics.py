"""Metrics of fine-tuning tasks, and the probabilities behind predictions.

The values are scikit-learn's and scipy's own; both are imported on first use.
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import DataError, require


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def classification_metrics(
    labels: Sequence[int], predictions: Sequence[int], average: str = "binary"
) -> dict[str, float]:
    """Returns `accuracy`, `f1`, `precision`, `recall` and `matthews` of class indices.

    `average` is `"binary"` (class 1 only; labels are 0 or 1), `"macro"`, `"micro"` or
    `"weighted"`. A ratio 0/0 is 0.
    """
    from sklearn import metrics

    labels, predictions = _arrays(labels, predictions)
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        labels, predictions, average=average, zero_division=0
    )
    with warnings.catch_warnings():
        # With a single class the correlation is 0/0, which is defined as 0.
        warnings.filterwarnings("ignore", "A single label was found", UserWarning)
        matthews = float(metrics.matthews_corrcoef(labels, predictions))
    return {
        "accuracy": float(metrics.accuracy_score(labels, predictions)),
        "f1": float(f1),
        "precision": float(precision),
        "recall": float(recall),
        "matthews": matthews,
    }


def multi_label_metrics(
    labels: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
    """Returns metrics of labels that each apply or not, bool `[N, C]`.

    These are `f1`, `precision`, `recall` (micro averages: over all cells), `f1_macro`
    (mean over labels) and `exact_match` (rows without a wrong cell). A ratio 0/0 is 0.
    """
    from sklearn import metrics

    labels, predictions = _arrays(labels, predictions, "bool")
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        labels.ravel(), predictions.ravel(), average="binary", zero_division=0
    )
    classes = per_class(labels, predictions, range(labels.shape[1]))
    return {
        "f1": float(f1),
        "precision": float(precision),
        "recall": float(recall),
        "f1_macro": float(np.mean([one["f1"] for one in classes])),
        "exact_match": float((labels == predictions).all(-1).mean()),
    }


def per_class(labels: np.ndarray, predictions: np.ndarray, names) -> list[dict]:
    """Returns precision, recall, F1 and number of examples of every class.

    `labels` and `predictions` are int `[N]`, or bool `[N, C]` for several labels per
    example.
    """
    from sklearn import metrics

    labels, predictions = _arrays(labels, predictions)
    if labels.ndim == 2:
        # scikit-learn reads a single column as classes; a column of zeros is harmless.
        labels, predictions = (
            np.pad(x, ((0, 0), (0, 1))) for x in (labels, predictions)
        )
    columns = metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(len(names)), average=None, zero_division=0
    )
    keys = ("precision", "recall", "f1")
    return [
        {"label": name, **dict(zip(keys, map(float, row), strict=False))}
        | {"support": int(row[3])}
        for name, row in zip(names, zip(*columns, strict=True), strict=True)
    ]


def confusion(labels, predictions, number: int) -> list[list[int]]:
    """Returns counts by class and predicted class; rows are the correct classes.

    `labels` and `predictions` are indices, int `[N]`, of `number` classes.
    """
    counts = np.zeros((number, number), np.int64)
    np.add.at(counts, (labels, predictions), 1)
    return counts.tolist()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each logit, independently of the others."""
    # Avoids exp of a large number, which would overflow.
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small))


def regression_metrics(
    labels: Sequence[float], predictions: Sequence[float]
) -> dict[str, float]:
    """Returns Pearson and Spearman correlation, their mean, and mean squared error.

    Correlations are nan if all labels or all predictions are equal, or if there is only
    one example. All are nan if a prediction is not finite.
    """
    from scipy import stats

    labels, predictions = _arrays(labels, predictions, "float64")
    pearson = spearman = math.nan
    # scipy also warns about (nearly) constant values and single examples.
    if np.isfinite(predictions).all() and np.ptp(labels) and np.ptp(predictions):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            pearson = float(stats.pearsonr(labels, predictions).statistic)
            spearman = float(stats.spearmanr(labels, predictions).statistic)
    return {
        "pearson": pearson,
        "spearman": spearman,
        "pearson_spearman": (pearson + spearman) / 2,
        "mse": float(np.mean((labels - predictions) ** 2)),
    }


def _arrays(labels, predictions, dtype: str | None = None) -> list[np.ndarray]:
    """Returns labels and predictions as non-empty arrays of one shape."""
    arrays = [np.asarray(x, dtype) for x in (labels, predictions)]
    require(
        arrays[0].size and arrays[0].shape == arrays[1].shape,
        "labels and predictions: expected as many of one as of the other, at least 1, "
        f"received arrays of the shapes {arrays[0].shape} and {arrays[1].shape}",
        error=DataError,
    )
    return arrays
