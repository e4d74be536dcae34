"""Single-label classification of texts and pairs of texts, for the user's own tables.

Legend: `N` examples, `C` labels.
"""

import csv
import dataclasses
import functools
import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from albert_tf.errors import UsageError
from albert_tf.tasks import tables
from albert_tf.tasks.metrics import classification_metrics, softmax
from albert_tf.tasks.task import SINGLE_LABEL, Source, Task

# A table with more labels is rarely meant: often the wrong column was named.
_MANY_LABELS = 50


def table_task(
    labels: Sequence[str] = (), splits: Mapping[str, Source] | None = None
) -> Task:
    """Returns the task of classifying the rows of a table.

    Args:
        labels: sequence of str. The `C` label names in the order of the class indices,
            or empty if the training table defines them (see `with_labels`).
        splits: dict. `TableSource` by name of the split.
    """
    # With two labels, F1, precision and recall are those of the second one.
    average = "binary" if len(labels) == 2 else "macro"
    return Task(
        "table",
        "text_classifier",
        functools.partial(classification_metrics, average=average),
        "accuracy",
        splits or {},
        tuple(labels),
        SINGLE_LABEL,
    )


def with_labels(task: Task, train: tables.TextTable, many_labels: bool = False) -> Task:
    """Returns the task with the labels of its training table, unless it has labels.

    Args:
        task: `Task`. Made by `table_task`.
        train: `TextTable`. The training table.
        many_labels: bool. Whether to accept labels that look like another column's
            content: more than 50 of them, or a different one in every row.

    Raises:
        DataError: If the table has empty labels or fewer than two.
        UsageError: If there are suspiciously many labels.
    """
    if task.labels:
        return task
    labels = tables.find_labels(train)
    every_row = len(labels) == len(train) > 2
    if not many_labels and (every_row or len(labels) > _MANY_LABELS):
        raise UsageError(
            f"label_column: expected at most {_MANY_LABELS} different labels that "
            f"repeat, received {len(labels)} in the {len(train)} rows of {train.path}, "
            f"such as {labels[0]!r}; if they are classes, confirm with --many_labels"
        )
    return dataclasses.replace(table_task(labels, task.splits), recipe=task.recipe)


def evaluate(
    task: Task, logits: np.ndarray, table: tables.TextTable
) -> dict[str, float]:
    """Compares a classifier's answers with the labels of a table.

    Args:
        task: `Task`. Its labels are the `C` classes of the classifier.
        logits: `[N, C]`.
        table: `TextTable`. `N` rows with labels.

    Returns:
        The task's metrics, and `majority_accuracy`: the accuracy of always predicting
        the most frequent label.

    Raises:
        DataError: If a label of the table is not one of the task's.
    """
    label_ids = np.array(tables.label_ids(table, task.labels))
    predictions = logits.argmax(-1)
    values = task.metrics(label_ids, predictions)
    counts = np.bincount(label_ids, minlength=len(task.labels))
    if len(set(predictions.tolist())) == 1 and np.count_nonzero(counts) > 1:
        logging.warning(
            "%s: the model predicts %r for every text; if it was fine-tuned just now, "
            "training collapsed: try a lower learning rate, a longer warm-up or "
            "another seed",
            table.path,
            task.labels[predictions[0]],
        )
    return {**values, "majority_accuracy": float(counts.max() / counts.sum())}


def predictions_table(
    logits: np.ndarray,
    labels: Sequence[str],
    known: Sequence[str] | None = None,
    delimiter: str = "\t",
) -> str:
    """Returns predictions as a table with a header and one row per example.

    The columns are the row number from 0, the known label if there is one, the
    predicted label, and the probability of each label.

    Args:
        logits: `[N, C]`.
        labels: sequence of str. The `C` names.
        known: sequence of str. The `N` correct labels, or None.
        delimiter: str. Character between cells.
    """
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    names = ["index", *(["label"] if known else []), "prediction"]
    writer.writerow([*names, *(f"probability_{label}" for label in labels)])
    for i, row in enumerate(softmax(logits)):
        cells = [i, *([known[i]] if known else []), labels[int(row.argmax())]]
        writer.writerow([*cells, *(f"{score:.6f}" for score in row)])
    return out.getvalue()


def predictions_text(
    path: str | os.PathLike, logits: np.ndarray, labels: Sequence[str]
) -> str:
    """Returns the content of a file of predictions.

    Args:
        path: str. Name of the file. Its ending selects the format: `.jsonl` for one
            JSON object per line, `.csv` for a table with commas, anything else for a
            table with tabs.
        logits: `[N, C]`.
        labels: sequence of str. The `C` names.
    """
    name = os.fspath(path).lower()
    if name.endswith(".jsonl"):
        return _json_lines(logits, labels)
    delimiter = "," if name.endswith(".csv") else "\t"
    return predictions_table(logits, labels, delimiter=delimiter)


def _json_lines(logits: np.ndarray, labels: Sequence[str]) -> str:
    """Returns one JSON object per example, its likeliest label first."""
    lines = []
    for i, row in enumerate(softmax(logits)):
        order = np.argsort(-row, kind="stable")
        line = {
            "index": i,
            "prediction": labels[order[0]],
            "probabilities": {labels[j]: round(float(row[j]), 6) for j in order},
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)
