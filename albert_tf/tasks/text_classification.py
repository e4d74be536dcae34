"""Classification and regression of texts and pairs of texts.

A text has one label, several labels, or a score. Legend: `N` examples, `C` labels.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError, UsageError, require
from albert_tf.tasks import metrics, retrieval
from albert_tf.tasks.labels import (
    choose_problem_type,
    find_labels,
    make_targets,
    usable,
)
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    EncodedExamples,
    Task,
)
from albert_tf.tasks.text_tables import AUTO, TextTable
from albert_tf.text import inputs

# More labels than this are rarely intended: often the wrong column was named.
_MANY_LABELS = 50
_TABLE = "table"
# Scores that vary less than this, relative to the labels, count as constant.
_CONSTANT = 0.01
# The dev sentences of WNLI occur in its training set with opposite labels, so even good
# models give one label to all of them (56.3% accuracy).
ONE_CLASS_IS_NORMAL = ("wnli",)
# Separators between the labels of an example; the first one that no label contains is
# used.
_SEPARATORS = (",", ";", "|", " ")
# Separates the two texts of a pair in reports.
_BETWEEN = " ‖ "


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """Answers to `N` texts.

    Attributes:
        labels: The `C` names; empty for scores.
        logits: float32 `[N, C]`, for scores `[N, 1]`.
        scores: float32 `[N, C]`. Probabilities: softmax, or for several labels per text
            sigmoid. For scores the values `[N]`.
        decisions: int64 `[N]`, the likeliest class (the first on a tie); bool `[N, C]`,
            logit > 0; or the scores themselves.
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
            return float(_score(float(self.decisions[i])))
        if self.problem_type == MULTI_LABEL:
            return [self.labels[j] for j in np.flatnonzero(self.decisions[i])]
        return self.labels[self.decisions[i]]


def make_answers(task: Task, logits: np.ndarray) -> Answers:
    """Returns the answers for logits, `[N, C]`, or `[N, 1]` for scores.

    Raises `DataError` if there are not as many outputs as labels.
    """
    logits = np.asarray(logits, np.float32)
    width = 1 if task.problem_type == REGRESSION else len(task.labels)
    rule = f"task {task.name}: expected a model with {width} outputs"
    fits = logits.ndim == 2 and logits.shape[1] == width
    require(fits, f"{rule}, received outputs of shape {logits.shape}", error=DataError)
    if task.problem_type == REGRESSION:
        scores = decisions = logits[:, 0]
    elif task.problem_type == MULTI_LABEL:
        scores, decisions = metrics.sigmoid(logits), logits > 0
    else:
        scores, decisions = metrics.softmax(logits), logits.argmax(-1)
    return Answers(task.problem_type, task.labels, logits, scores, decisions)


class TextTask(Task):
    """Text classification and regression; see `task.Task`.

    Examples are a `TextTable`; answers are `Answers`.
    """

    @property
    def has_pairs(self) -> bool:
        """Whether the examples are known to be pairs of texts."""
        columns = [getattr(source, "columns", None) for source in self.splits.values()]
        pairs = [getattr(layout, "text_pair_column", "") for layout in columns]
        return any([*pairs, self.table.get("text_pair_column")])

    def usable(self, examples) -> TextTable:
        """Returns the examples without any that have no valid label."""
        if examples.groups is not None:
            retrieval.check_groups(self, examples)
        return usable(self, examples, self.options.on_bad_input)

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for every example.

        Raises `DataError` if a label is missing, unknown or not a score, and
        `UsageError` if the task has pairs of texts and the examples do not.
        """
        require(
            examples.text_pairs is not None or not self.has_pairs,
            f"{examples.path}: expected pairs of texts, which the model was fine-tuned "
            "on, received single texts; give text_pairs or --text_pair_column",
        )
        values = {}
        if examples.labels is not None:
            values[features.LABELS] = make_targets(self, examples)
        rows = inputs.encode_texts(
            tokenizer,
            examples.texts,
            examples.text_pairs,
            max_seq_length=self.options.max_seq_length,
        )
        return EncodedExamples(rows, np.arange(len(rows) + 1), values, rows.truncated)

    def answers(self, examples, encoded, outputs) -> Answers:
        """Returns probabilities and decisions."""
        return make_answers(self, outputs["logits"])

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns the task's metrics, and the metrics of a constant answer.

        In addition to the task's metrics: `majority_accuracy`, and `majority_` with the
        name of the selecting metric, for always answering with the most frequent label.
        Several labels per text: `majority_` with the selecting metric, each label
        answered by its more frequent value. Scores: `mse`, and `mean_mse` for always
        answering with the mean of the labels. For groups: `retrieval.compare_groups`.
        """
        correct, decisions = make_targets(self, examples), answers.decisions
        if self.positive_label is not None:
            # F1 refers to one label by its name, whatever its index in the model.
            value = np.array([int(x == self.positive_label) for x in self.labels])
            correct, decisions = value[correct], value[decisions]
        values = dict(self.metrics(correct, decisions))
        if examples.groups is not None:
            values |= retrieval.compare_groups(self._ranked(examples, answers))
        if self.problem_type == REGRESSION:
            correct = correct.astype(np.float64)
            values["mse"] = float(np.mean((correct - decisions) ** 2))
            return values | {"mean_mse": float(correct.var())}
        if self.problem_type == MULTI_LABEL:
            constant = np.broadcast_to(correct.mean(0) > 0.5, correct.shape)
        else:
            counts = np.bincount(correct, minlength=len(self.labels))
            constant = np.full_like(correct, counts.argmax())
            values["majority_accuracy"] = float(counts.max() / counts.sum())
        name = self.selecting_metric
        return values | {f"majority_{name}": self.metrics(correct, constant)[name]}

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the metrics that can select a model."""
        ranks = () if examples.groups is None else retrieval.OF_GROUPS
        if self.problem_type == REGRESSION:
            values = self.metrics([0.0, 1.0], [0.0, 1.0])
            return list(dict.fromkeys([*values, *ranks, "mse"]))
        cells = np.array([0, 1])
        if self.problem_type == MULTI_LABEL:
            cells = np.ones((1, len(self.labels)), bool)
        return [*self.metrics(cells, cells), *ranks]

    def strata(self, examples) -> list[tuple[Any, Any]]:
        """Returns the group of each example, which stays together, and its label."""
        groups = examples.groups or range(len(examples))
        return list(zip(groups, examples.labels, strict=True))

    def collapse(self, examples, answers) -> str:
        """Returns a message if all answers are alike although the labels are not."""
        if not np.isfinite(answers.logits).all():
            return "the model's outputs are not finite"
        if examples.labels is None:
            return ""
        correct, given = make_targets(self, examples), answers.decisions
        if self.problem_type == REGRESSION:
            if correct.std() and given.std() < _CONSTANT * correct.std():
                return f"the model gives every text the same score, {given.mean():.4g}"
            return ""
        if (correct == correct[0]).all() or not (given == given[0]).all():
            return ""
        problem = f"the model predicts {answers.text(0)!r} for every text"
        if self.name not in ONE_CLASS_IS_NORMAL:
            return problem
        logging.info(
            "%s: %s; for %s this is usual, because its dev sentences are those of its "
            "training set with opposite labels",
            examples.path,
            problem,
            self.name,
        )
        return ""

    def rows(self, examples, answers) -> list[dict[str, Any]]:
        """Returns the answers, with the probabilities of each text sorted."""
        rows = []
        for i, name in enumerate(examples.ids):
            label = {} if examples.labels is None else {"label": examples.labels[i]}
            row = {"index": name, **label, "prediction": answers.text(i)}
            if answers.labels:
                scores = answers.scores[i]
                row["probabilities"] = {
                    answers.labels[j]: round(float(scores[j]), 6)
                    for j in np.argsort(-scores, kind="stable")
                }
            rows.append(row)
        return rows

    def cells(self, examples, answers) -> list[list[str]]:
        """Returns id, correct label if known, answer, and probabilities of labels.

        Several labels are separated by a comma, or by the first of `; |` and space that
        no label contains. A score has no probabilities.
        """
        label_column = [] if examples.labels is None else ["label"]
        columns = ["index", *label_column, "prediction"]
        rows = [columns + [f"probability_{label}" for label in answers.labels]]
        for i, name in enumerate(examples.ids):
            correct = [examples.labels[i]] if label_column else []
            cells = [_cell(x, answers.labels) for x in (*correct, answers.text(i))]
            scores = answers.scores[i] if answers.labels else ()
            rows.append([name, *cells, *(f"{score:.6f}" for score in scores)])
        return rows

    def report(self, examples, answers, encoded) -> dict[str, Any]:
        """Returns the content of a report: confusions, calibration, worst errors."""
        if examples.labels is None:
            return {}
        correct, scores = make_targets(self, examples), answers.scores
        if self.problem_type == REGRESSION:
            wrong = sizes = losses = np.abs(scores - correct)
            report = {"scatter": np.stack([correct, scores], -1).tolist()}
        else:
            decisions, single = answers.decisions, self.problem_type == SINGLE_LABEL
            correct = correct.astype(decisions.dtype)
            right = decisions == correct
            confidence = scores.max(-1) if single else np.maximum(scores, 1 - scores)
            pairs = zip(confidence.flat, right.flat, strict=True)
            report = {
                "labels": list(answers.labels),
                "per_class": metrics.per_class(correct, decisions, answers.labels),
                "calibration": [[float(x), bool(is_right)] for x, is_right in pairs],
            }
            wrong = ~right if single else ~right.all(-1)
            losses = _losses(answers, correct)
            # The confidence in a wrong class; otherwise the size of the error.
            sizes = confidence if single else losses
            if single:
                counts = metrics.confusion(correct, decisions, len(answers.labels))
                report["confusion"] = counts
        if examples.groups is not None:
            queries = self._ranked(examples, answers)
            worst = retrieval.worst_groups(queries, examples, encoded.truncated)
            return report | {"errors": worst}
        order = np.argsort(-np.nan_to_num(losses, nan=np.inf), kind="stable")
        report["errors"] = [
            {
                "index": examples.ids[i],
                "text": _text(examples, i),
                "label": label if isinstance(label, str) else list(label),
                "prediction": answers.text(i),
                "score": float(sizes[i]),
                "truncated": bool(encoded.truncated[i]),
            }
            for i in order[wrong[order] != 0][:MOST_ERRORS].tolist()
            for label in [examples.labels[i]]
        ]
        return report

    def _ranked(self, examples, answers) -> list[dict[str, Any]]:
        relevance, scores = make_targets(self, examples), answers.scores
        if self.problem_type == SINGLE_LABEL:
            chosen = self.labels.index(self.positive_label)
            relevance = relevance == chosen
            # The probability has the same order, but many are equal to 1.
            scores = answers.logits[:, chosen] - answers.logits[:, 1 - chosen]
        return retrieval.rank_groups(examples, relevance, scores)


def table_task(labels: Sequence[str] = (), problem_type: str = SINGLE_LABEL) -> Task:
    """Returns the task of a table's rows; training rows define labels if not given."""
    # With two labels, F1, precision and recall refer to the last one.
    is_binary = problem_type == SINGLE_LABEL and len(labels) == 2
    average = "binary" if is_binary else "macro"
    classification = functools.partial(metrics.classification_metrics, average=average)
    functions = {
        SINGLE_LABEL: classification,
        MULTI_LABEL: metrics.multi_label_metrics,
        REGRESSION: metrics.regression_metrics,
    }
    selecting = {SINGLE_LABEL: "accuracy", MULTI_LABEL: "f1", REGRESSION: "pearson"}
    return TextTask(
        name=_TABLE,
        head="text_classifier",
        metrics=functions[problem_type],
        selecting_metric=selecting[problem_type],
        labels=tuple(labels),
        positive_label=labels[-1] if is_binary else None,
        problem_type=problem_type,
    )


def with_labels(
    task: Task,
    train: TextTable,
    many_labels: bool = False,
    problem_type: str = AUTO,
    on_bad_input: str = "stop",
) -> Task:
    """Returns the task with the labels of its training table, unless it has labels.

    With "skip", rows without a label are ignored. Raises `DataError` if the table has
    empty labels or fewer than two, and `UsageError` without `many_labels` if labels
    look like another column's content: more than 50 of them, or a different one in
    every row.
    """
    if on_bad_input == "skip":
        train = train.select([i for i, label in enumerate(train.labels) if label != ""])
    has_lists = any(not isinstance(label, str) for label in train.labels or ())
    if task.labels and problem_type == AUTO and not has_lists:
        return task
    kind = choose_problem_type(train, problem_type)
    labels = task.labels
    if not labels:
        labels = () if kind == REGRESSION else find_labels(train)
        every_row = kind == SINGLE_LABEL and len(labels) == len(train) > 2
        if not many_labels and (every_row or len(labels) > _MANY_LABELS):
            raise UsageError(
                f"label_column: expected at most {_MANY_LABELS} different labels that "
                f"repeat, received {len(labels)} in the {len(train)} rows of "
                f"{train.path}, such as {labels[0]!r}; if they are classes, confirm "
                f"with --many_labels; if they are scores, give --problem_type="
                f"{REGRESSION}"
            )
    elif kind == REGRESSION:
        raise UsageError(f"labels: scores have none, received {','.join(labels)}")
    return table_task(labels, kind)


def _cell(value: str | float | Sequence[str], labels: Sequence[str]) -> str:
    """Returns a label, a score, or several labels as a cell of a table."""
    if isinstance(value, float | str):
        return value if isinstance(value, str) else _score(value)
    for separator in _SEPARATORS:
        if not any(separator in label for label in labels):
            return separator.join(value)
    return json.dumps(list(value), ensure_ascii=False)


def _score(value: float) -> str:
    """Returns a score with six decimals, a small one with six significant digits."""
    return f"{value:.6g}" if 0 < abs(value) < 0.1 else f"{value:.6f}"


def _losses(answers: Answers, targets: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each example, `[N]`."""
    logits = answers.logits.astype(np.float64)
    if answers.problem_type == MULTI_LABEL:
        return np.logaddexp(0, np.where(targets, -logits, logits)).sum(-1)
    chosen = np.take_along_axis(logits, targets[:, None], -1)[:, 0]
    return np.logaddexp.reduce(logits, -1) - chosen


def _text(table: TextTable, i: int) -> str:
    texts = [table.texts[i]]
    if table.text_pairs is not None:
        texts.append(table.text_pairs[i])
    room = (LONGEST_TEXT - len(_BETWEEN) * (len(texts) - 1)) // len(texts)
    return _BETWEEN.join(
        text if len(text) <= room else f"{text[: room - 1]}…" for text in texts
    )
