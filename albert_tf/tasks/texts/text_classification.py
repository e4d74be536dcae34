"""Classification and regression of texts and pairs of texts.

One label per text, several labels per text, or a score. Legend: `N` examples, `C`
labels.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.tasks import metrics
from albert_tf.tasks.task import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    EncodedExamples,
    Family,
    FileSource,
    Options,
    Task,
)
from albert_tf.tasks.texts import targets, text_predictions, text_report
from albert_tf.tasks.texts.tables import AUTO
from albert_tf.tasks.texts.text_predictions import Answers, make_answers
from albert_tf.tasks.texts.text_table import TextTable
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

# A table with more labels is rarely meant: often the wrong column was named.
_MANY_LABELS = 50
_TABLE = "table"
# Scores that vary less than this, relative to the labels, are one constant.
_CONSTANT = 0.01
# The dev sentences of WNLI are those of its training set with opposite labels, so good
# models, too, give one label to all of them (56.3% accuracy).
ONE_CLASS_IS_NORMAL = ("wnli",)


class TextClassification(Family):
    """Text classification and regression; see `task.Family`.

    Examples are a `TextTable`; answers are `Answers`.
    """

    def usable(self, task: Task, examples: TextTable, options: Options) -> TextTable:
        """Returns the examples without those that have no good label.

        Raises:
            DataError: See `targets.usable`.
        """
        return targets.usable(task, examples, options.on_bad_input)

    def encode(
        self, task: Task, examples: TextTable, tokenizer: Tokenizer, options: Options
    ) -> EncodedExamples:
        """Returns `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of every example.

        Raises:
            DataError: If a label is missing, unknown or not a score.
        """
        values = {}
        if examples.labels is not None:
            values[features.LABELS] = targets.make_targets(task, examples)
        rows = inputs.encode_texts(
            tokenizer,
            examples.texts,
            examples.text_pairs,
            max_seq_length=options.max_seq_length,
        )
        return EncodedExamples(rows, np.arange(len(rows) + 1), values, rows.truncated)

    def answers(
        self,
        task: Task,
        examples: TextTable,
        encoded: EncodedExamples,
        outputs: Mapping[str, np.ndarray],
        options: Options,
    ) -> Answers:
        """Returns probabilities and decisions."""
        return make_answers(task, outputs["logits"])

    def metrics(
        self, task: Task, examples: TextTable, answers: Answers
    ) -> dict[str, float]:
        """Returns the task's metrics and what a constant answer would reach.

        In addition to the task's metrics: `majority_accuracy`, and `majority_` and the
        name of the selecting metric, for always answering with the most frequent label.
        Several labels per text: `majority_` and the selecting metric, each label
        answered by its more frequent value. Scores: `mse`, and `mean_mse` for always
        answering with the mean of the labels.
        """
        correct = targets.make_targets(task, examples)
        decisions = answers.decisions
        if task.positive_label is not None:
            # F1 is that of one label, by its name, wherever a model has it.
            value = np.array([int(x == task.positive_label) for x in task.labels])
            correct, decisions = value[correct], value[decisions]
        values = dict(task.metrics(correct, decisions))
        if task.problem_type == REGRESSION:
            correct = correct.astype(np.float64)
            values["mse"] = float(np.mean((correct - decisions) ** 2))
            return values | {"mean_mse": float(correct.var())}
        selecting = task.selecting_metric
        if task.problem_type == MULTI_LABEL:
            constant = np.broadcast_to(correct.mean(0) > 0.5, correct.shape)
            baseline = task.metrics(correct, constant)
            return values | {f"majority_{selecting}": baseline[selecting]}
        counts = np.bincount(correct, minlength=len(task.labels))
        constant = np.full_like(correct, counts.argmax())
        values["majority_accuracy"] = float(counts.max() / counts.sum())
        values[f"majority_{selecting}"] = task.metrics(correct, constant)[selecting]
        return values

    def metric_names(self, task: Task, examples: TextTable) -> list[str]:
        """Returns the names of the metrics that can select a model."""
        if task.problem_type == REGRESSION:
            values = task.metrics([0.0, 1.0], [0.0, 1.0])
            return list(dict.fromkeys([*values, "mse"]))
        if task.problem_type == MULTI_LABEL:
            cells = np.ones((1, len(task.labels)), bool)
            return list(task.metrics(cells, cells))
        return list(task.metrics([0, 1], [0, 1]))

    def collapse(self, task: Task, examples: TextTable, answers: Answers) -> str:
        """Returns how the answers are all alike although the labels are not."""
        if not np.isfinite(answers.logits).all():
            return "the model's outputs are not finite"
        if examples.labels is None:
            return ""
        correct, given = targets.make_targets(task, examples), answers.decisions
        if task.problem_type == REGRESSION:
            if correct.std() and given.std() < _CONSTANT * correct.std():
                return f"the model gives every text the same score, {given.mean():.4g}"
            return ""
        if (correct == correct[0]).all() or not (given == given[0]).all():
            return ""
        found = f"the model predicts {answers.text(0)!r} for every text"
        if task.name not in ONE_CLASS_IS_NORMAL:
            return found
        logging.info(
            "%s: %s; for %s this is usual, because its dev sentences are those of its "
            "training set with opposite labels",
            examples.path,
            found,
            task.name,
        )
        return ""

    def prediction_files(
        self, task: Task, examples: TextTable, answers: Answers, options: Options
    ) -> dict[str, str]:
        """Returns the contents of the files of predictions; see `text_predictions`."""
        ids, known = examples.ids, examples.labels
        return {
            ".tsv": text_predictions.table_text(answers, ids, known),
            ".jsonl": text_predictions.json_lines(answers, ids, known),
        }

    def report(
        self,
        task: Task,
        examples: TextTable,
        answers: Answers,
        encoded: EncodedExamples,
    ) -> dict[str, Any]:
        """Returns what a report shows; see `text_report`."""
        if examples.labels is None:
            return {}
        correct = targets.make_targets(task, examples)
        return text_report.make_report(answers, correct, examples, encoded.truncated)


FAMILY = TextClassification()


def table_task(
    labels: Sequence[str] = (),
    splits: Mapping[str, FileSource] | None = None,
    problem_type: str = SINGLE_LABEL,
) -> Task:
    """Returns the task of classifying or scoring the rows of a table.

    Args:
        labels: sequence of str. The `C` label names in the order of the class indices,
            or empty if the training table defines them (see `with_labels`).
        splits: dict. `TableSource` by name of the split.
        problem_type: str. One label per row, several, or a score; see `Task`.
    """
    # With two labels, F1, precision and recall are those of the last one.
    is_binary = problem_type == SINGLE_LABEL and len(labels) == 2
    average = "binary" if is_binary else "macro"
    classification = functools.partial(metrics.classification_metrics, average=average)
    functions = {
        SINGLE_LABEL: classification,
        MULTI_LABEL: metrics.multi_label_metrics,
        REGRESSION: metrics.regression_metrics,
    }
    selecting = {SINGLE_LABEL: "accuracy", MULTI_LABEL: "f1", REGRESSION: "pearson"}
    return Task(
        name=_TABLE,
        head="text_classifier",
        metrics=functions[problem_type],
        selecting_metric=selecting[problem_type],
        splits=splits or {},
        labels=tuple(labels),
        positive_label=labels[-1] if is_binary else None,
        problem_type=problem_type,
        family=FAMILY,
    )


def with_labels(
    task: Task,
    train: TextTable,
    many_labels: bool = False,
    problem_type: str = AUTO,
    on_bad_input: str = "stop",
) -> Task:
    """Returns the task with the labels of its training table, unless it has labels.

    Args:
        task: `Task`. Made by `table_task`.
        train: `TextTable`. The training table.
        many_labels: bool. Whether to accept labels that look like another column's
            content: more than 50 of them, or a different one in every row.
        problem_type: str. What the labels are; by default the labels decide, see
            `targets.choose_problem_type`.
        on_bad_input: str. "skip" does not look at rows without a label.

    Raises:
        DataError: If the table has empty labels or fewer than two.
        UsageError: If there are suspiciously many labels.
    """
    if on_bad_input == "skip":
        train = train.select([i for i, label in enumerate(train.labels) if label != ""])
    if task.labels and problem_type == AUTO and not _has_lists(train):
        return task
    kind = targets.choose_problem_type(train, problem_type)
    labels = task.labels
    if not labels:
        labels = targets.labels_of(train, kind)
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
    found = table_task(labels, task.splits, kind)
    return dataclasses.replace(found, recipe=task.recipe, options=task.options)


def _has_lists(table: TextTable) -> bool:
    return any(not isinstance(label, str) for label in table.labels or ())
