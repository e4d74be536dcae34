"""Single-label classification of texts and pairs."""

import csv
import io
from collections.abc import Sequence

import numpy as np
from absl import logging

from albert_tf.tasks import metrics as task_metrics
from albert_tf.tasks import tables


def evaluate(
    logits: np.ndarray, table: tables.TextTable, labels: Sequence[str]
) -> dict[str, float]:
    """What a classifier's answers are worth.

    Args:
        logits: `[N, C]`.
        table: `N` rows with labels.
        labels: The `C` names.

    Returns:
        Accuracy, F1, precision, recall (of the second label if there are two, else the
        labels' mean), Matthews correlation, and the accuracy of always saying the most
        frequent label.

    Raises:
        DataError: If a row has another label.
    """
    label_ids = np.array(tables.label_ids(table, labels))
    predictions = logits.argmax(-1)
    average = "binary" if len(labels) == 2 else "macro"
    values = task_metrics.classification_metrics(label_ids, predictions, average)
    counts = np.bincount(label_ids, minlength=len(labels))
    if len(set(predictions.tolist())) == 1 and np.count_nonzero(counts) > 1:
        logging.warning(
            "%s: the model predicts %r for every text; if it was fine-tuned just now, "
            "training collapsed: try a lower learning rate, more warm-up, another seed",
            table.path,
            labels[predictions[0]],
        )
    return {**values, "majority_accuracy": float(counts.max() / counts.sum())}


def predictions_table(
    logits: np.ndarray, labels: Sequence[str], known: Sequence[str] | None = None
) -> str:
    """TSV: row number from 0, known label, predicted label, a probability per label."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    scores = shifted / shifted.sum(-1, keepdims=True)
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n")
    names = ["index", *(["label"] if known else []), "prediction"]
    writer.writerow([*names, *(f"probability_{label}" for label in labels)])
    for i, row in enumerate(scores):
        cells = [i, *([known[i]] if known else []), labels[int(row.argmax())]]
        writer.writerow([*cells, *(f"{score:.6f}" for score in row)])
    return out.getvalue()
