"""Answers to classified texts, and the files they are written to.

Legend: `N` examples, `C` labels.
"""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tasks.metrics import sigmoid, softmax
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, Task

# Between the labels of an example; the first one that is in no label.
_SEPARATORS = (",", ";", "|", " ")


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """Answers to `N` texts.

    Attributes:
        problem_type: str. See `Task`.
        labels: tuple of str. The `C` names; empty for scores.
        logits: float32 `[N, C]`, for scores `[N, 1]`.
        scores: float32 `[N, C]`. Probabilities: softmax, or for several labels per text
            sigmoid. For scores the values `[N]`.
        decisions: int64 `[N]`, the likeliest class (the first of equals); bool
            `[N, C]`, logit > 0; or the scores themselves.
    """

    problem_type: str
    labels: tuple[str, ...]
    logits: np.ndarray
    scores: np.ndarray
    decisions: np.ndarray

    def __len__(self) -> int:
        return len(self.logits)

    def text(self, i: int) -> str | list[str] | float:
        """Returns the answer to a text: a label, labels, or a score."""
        if self.problem_type == REGRESSION:
            return round(float(self.decisions[i]), 6)
        if self.problem_type == MULTI_LABEL:
            return [self.labels[j] for j in np.flatnonzero(self.decisions[i])]
        return self.labels[self.decisions[i]]


def make_answers(task: Task, logits: np.ndarray) -> Answers:
    """Returns the answers that logits stand for.

    Args:
        task: `Task`. With its labels.
        logits: `[N, C]`, for scores `[N, 1]`.

    Raises:
        DataError: If the model has another number of outputs than the task has labels.
    """
    logits = np.asarray(logits, np.float32)
    width = 1 if task.problem_type == REGRESSION else len(task.labels)
    if logits.ndim != 2 or logits.shape[1] != width:
        raise DataError(
            f"task {task.name}: expected a model with {width} outputs, received "
            f"outputs of shape {logits.shape}"
        )
    if task.problem_type == REGRESSION:
        scores = decisions = logits[:, 0]
    elif task.problem_type == MULTI_LABEL:
        scores, decisions = sigmoid(logits), logits > 0
    else:
        scores, decisions = softmax(logits), logits.argmax(-1)
    return Answers(task.problem_type, task.labels, logits, scores, decisions)


def table_text(
    answers: Answers,
    ids: Sequence[str],
    known: Sequence | None = None,
    delimiter: str = "\t",
    header: bool = True,
) -> str:
    """Returns predictions as a table with a header and one row per example.

    The columns are the id, the known label if there is one, the predicted label, and
    the probability of each label. Several labels are divided by a comma, or by the
    first of `; |` and space that is in no label. A score has no probabilities.

    Args:
        answers: `Answers`.
        ids: sequence of str. The `N` names of the examples.
        known: sequence. The `N` correct labels, or None.
        delimiter: str. Character between cells.
        header: bool. Whether the header is wanted.
    """
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    names = ["index", *(["label"] if known else []), "prediction"]
    names += [f"probability_{label}" for label in answers.labels]
    if header:
        writer.writerow(names)
    for i in range(len(answers)):
        cells = [ids[i], *([_cell(known[i], answers)] if known else [])]
        cells.append(_cell(answers.text(i), answers))
        if answers.labels:
            cells.extend(f"{score:.6f}" for score in answers.scores[i])
        writer.writerow(cells)
    return out.getvalue()


def _cell(value, answers: Answers) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, str):
        return value
    for separator in _SEPARATORS:
        if not any(separator in label for label in answers.labels):
            return separator.join(value)
    return json.dumps(list(value), ensure_ascii=False)


def json_lines(
    answers: Answers,
    ids: Sequence[str],
    known: Sequence | None = None,
    first: int = 0,
) -> str:
    """Returns one JSON object per example, its likeliest label first.

    Args:
        answers: `Answers`.
        ids: sequence of str. The `N` names of the examples. Row numbers are written as
            numbers.
        known: sequence. The `N` correct labels, or None.
        first: int. Index of the first example.
    """
    is_number = are_numbers(ids, first)
    lines = []
    for i, name in enumerate(ids):
        line = {"index": first + i if is_number else name}
        if known is not None:
            label = known[i]
            line["label"] = label if isinstance(label, str) else list(label)
        line["prediction"] = answers.text(i)
        if answers.labels:
            row = answers.scores[i]
            order = np.argsort(-row, kind="stable")
            line["probabilities"] = {
                answers.labels[j]: round(float(row[j]), 6) for j in order
            }
        lines.append(files.to_json(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def are_numbers(ids: Sequence[str], first: int = 0) -> bool:
    """Returns whether ids are the indices of the rows, starting at `first`."""
    return all(name == str(i) for i, name in enumerate(ids, first))
