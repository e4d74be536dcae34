"""What a report shows about classified texts: confusions, calibration, worst errors.

Legend: `N` examples, `C` labels.
"""

from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.metrics import per_class
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from albert_tf.tasks.texts.text_predictions import Answers
from albert_tf.tasks.texts.text_table import TextTable

_NUM_ERRORS = 50
_LONGEST_TEXT = 1000
# Between the two texts of a pair.
_BETWEEN = " ‖ "


def make_report(
    answers: Answers, targets: np.ndarray, table: TextTable, truncated: np.ndarray
) -> dict:
    """Returns what `Family.report` describes.

    Args:
        answers: `Answers`. To `N` texts.
        targets: As `targets.make_targets` returns them.
        table: `TextTable`. `N` rows.
        truncated: bool `[N]`. Which texts were cut.
    """
    kind = answers.problem_type
    if kind == REGRESSION:
        wrong = losses = np.abs(answers.scores - targets)
        pairs = zip(targets.tolist(), answers.scores.tolist(), strict=True)
        report = {"scatter": [list(pair) for pair in pairs]}
    else:
        right = answers.decisions == targets.astype(answers.decisions.dtype)
        wrong = ~right.all(-1) if kind == MULTI_LABEL else ~right
        losses = _losses(answers, targets)
        decisions = answers.decisions
        report = {
            "labels": list(answers.labels),
            "per_class": per_class(
                targets.astype(decisions.dtype), decisions, answers.labels
            ),
            "calibration": _calibration(answers, right),
        }
    if kind == SINGLE_LABEL:
        report["confusion"] = _confusion(targets, answers)
    order = np.argsort(-np.nan_to_num(losses, nan=np.inf), kind="stable")
    worst = [int(i) for i in order if wrong[i]][:_NUM_ERRORS]
    report["errors"] = [
        {
            "index": table.ids[i],
            "text": _text(table, i),
            "label": _shown(table.labels[i]),
            "prediction": answers.text(i),
            "score": _score(answers, losses, i),
            "truncated": bool(truncated[i]),
        }
        for i in worst
    ]
    return report


def _losses(answers: Answers, targets: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each example, `[N]`."""
    logits = answers.logits.astype(np.float64)
    if answers.problem_type == MULTI_LABEL:
        cells = np.logaddexp(0, np.where(targets > 0, -logits, logits))
        return cells.sum(-1)
    chosen = np.take_along_axis(logits, targets[:, None].astype(np.int64), -1)[:, 0]
    return np.logaddexp.reduce(logits, -1) - chosen


def _score(answers: Answers, losses: np.ndarray, i: int) -> float:
    """Returns how sure the model was of a wrong class; else the size of the error."""
    if answers.problem_type == SINGLE_LABEL:
        return float(answers.scores[i].max())
    return float(losses[i])


def _calibration(answers: Answers, right: np.ndarray) -> list[list]:
    """Returns (confidence, whether it is right) of every decision."""
    scores = answers.scores
    if answers.problem_type == MULTI_LABEL:
        confidence = np.maximum(scores, 1 - scores)
    else:
        confidence = scores.max(-1)
    pairs = zip(confidence.ravel().tolist(), right.ravel().tolist(), strict=True)
    return [[value, bool(is_right)] for value, is_right in pairs]


def _confusion(targets: np.ndarray, answers: Answers) -> list[list[int]]:
    """Returns counts `[C, C]`; rows are the correct labels."""
    counts = np.zeros((len(answers.labels),) * 2, np.int64)
    np.add.at(counts, (targets, answers.decisions), 1)
    return counts.tolist()


def _text(table: TextTable, i: int) -> str:
    texts = [table.texts[i]]
    if table.text_pairs is not None:
        texts.append(table.text_pairs[i])
    room = (_LONGEST_TEXT - len(_BETWEEN) * (len(texts) - 1)) // len(texts)
    return _BETWEEN.join(_cut(text, room) for text in texts)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _shown(label: str | Sequence[str]) -> str | list[str]:
    return label if isinstance(label, str) else list(label)
