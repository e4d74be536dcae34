"""Turns the labels of a table into what a model is trained on.

Legend: `N` rows, `C` labels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.errors import DataError
from albert_tf.tables.columns import BadRows
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Task
from albert_tf.tasks.texts.tables import AUTO, find_labels, unknown_label
from albert_tf.tasks.texts.text_table import TextTable


def make_targets(task: Task, table: TextTable) -> np.ndarray:
    """Returns the labels of a table as numbers.

    Args:
        task: `Task`. Its `problem_type` and `labels` decide.
        table: `TextTable`. `N` rows with labels.

    Returns:
        int32 `[N]`, the index of the label in `task.labels`; for several labels per row
        float32 `[N, C]`, 1 where a label applies; for scores float32 `[N]`.

    Raises:
        DataError: If a label is missing, unknown, or not a finite number where a score
            is due; names file, line and value.
    """
    convert = _converter(task)
    values = []
    for row, label in enumerate(table.labels):
        try:
            values.append(convert(label))
        except ValueError as e:
            raise DataError(f"{table.where(row)}: {e}") from None
    return np.array(values, np.int32 if task.problem_type == SINGLE_LABEL else "f4")


def usable(task: Task, table: TextTable, on_bad_input: str = "stop") -> TextTable:
    """Returns the table without the rows that have no good label.

    Args:
        task: `Task`. With its labels.
        table: `TextTable`. Without labels it is returned as it is.
        on_bad_input: str. "stop" raises an error at the first such row, "skip" leaves
            such rows out and counts them in `skipped`.

    Raises:
        DataError: If a row has no good label, or no row has one.
    """
    if table.labels is None:
        return table
    convert, bad, kept = _converter(task), BadRows(on_bad_input), []
    for row, label in enumerate(table.labels):
        try:
            convert(label)
            kept.append(row)
        except ValueError as e:
            bad.report("rows without a good label", f"{table.where(row)}: {e}")
    if len(kept) == len(table):
        return table
    if not kept:
        raise DataError(
            f"{table.path}: no row has a good label; the first one: "
            f"{_problem(convert, table.labels[0])}"
        )
    return table.kept(kept, bad.counts)


def choose_problem_type(table: TextTable, given: str = AUTO) -> str:
    """Returns what the labels of a training table are, and logs the choice.

    Args:
        table: `TextTable`. With labels.
        given: str. `SINGLE_LABEL`, `MULTI_LABEL`, `REGRESSION`, or `AUTO` to let the
            labels decide: lists are several labels per row; numbers, at least one of
            them written with a decimal point or an exponent, are scores (as in Hugging
            Face's run_classification, where the column's type decides); anything else
            is a class.

    Raises:
        DataError: If the labels are of two kinds.
    """
    labels = table.labels
    has_lists = any(not isinstance(label, str) for label in labels)
    if given != AUTO:
        if (given == MULTI_LABEL) != has_lists:
            received = "lists" if has_lists else "single labels"
            raise DataError(
                f"{table.path}: problem_type={given} does not fit the labels, which "
                f"are {received}"
                + ("" if has_lists else " (--label_separator divides cells)")
            )
        return given
    if has_lists:
        logging.info("%s: rows have several labels (lists)", table.path)
        return MULTI_LABEL
    decimals = sum(map(_is_decimal, labels))
    if not decimals:
        if all(_is_number(label) for label in labels):
            logging.info(
                "%s: the whole numbers in the label column are read as classes; "
                "--problem_type=regression reads them as scores",
                table.path,
            )
        return SINGLE_LABEL
    numbers = sum(map(_is_number, labels))
    if numbers == len(labels):
        logging.info(
            "%s: the numbers with decimal points in the label column are read as "
            "scores; --problem_type=%s reads them as classes",
            table.path,
            SINGLE_LABEL,
        )
        return REGRESSION
    row = next(i for i, label in enumerate(labels) if not _is_number(label))
    raise DataError(
        f"{table.where(row)}: the label is {labels[row]!r:.100}, but {decimals} rows "
        f"have numbers with decimal points; give --problem_type=regression for scores "
        f"or --problem_type={SINGLE_LABEL} for classes"
    )


def labels_of(table: TextTable, problem_type: str) -> tuple[str, ...]:
    """Returns the labels that a training table defines; none for scores.

    Raises:
        DataError: If a label is empty, or if there are fewer than two.
    """
    return () if problem_type == REGRESSION else tuple(find_labels(table))


def _converter(task: Task) -> Callable[[Any], Any]:
    """Returns what turns a label into its number, or raises a ValueError."""
    if task.problem_type == REGRESSION:
        return _score
    index = {label: i for i, label in enumerate(task.labels)}
    if task.problem_type == MULTI_LABEL:
        return lambda label: _several(label, index, task.labels)
    return lambda label: _one(label, index, task.labels)


def _one(label, index: dict[str, int], labels: Sequence[str]) -> int:
    if not isinstance(label, str):
        raise ValueError(f"expected one label, received the list {list(label)!r:.200}")
    if label not in index:
        raise ValueError(unknown_label(label, labels))
    return index[label]


def _several(label, index: dict[str, int], labels: Sequence[str]) -> np.ndarray:
    if isinstance(label, str):
        raise ValueError(f"expected a list of labels, received {label!r:.200}")
    values = np.zeros(len(labels), np.float32)
    for name in label:
        if name not in index:
            raise ValueError(unknown_label(name, labels))
        values[index[name]] = 1
    return values


def _score(label) -> float:
    if not isinstance(label, str) or not _is_number(label):
        shown = label if isinstance(label, str) else list(label)
        raise ValueError(f"expected a number as score, received {shown!r:.200}")
    if not abs(float(label)) <= float(np.finfo(np.float32).max):
        raise ValueError(f"expected a finite number as score, received {label!r:.200}")
    return float(label)


def _is_number(label: str) -> bool:
    """Whether a label is a number; float() also accepts "1_0", which is not."""
    try:
        float(label)
    except ValueError:
        return False
    return "_" not in label


def _is_decimal(label: str) -> bool:
    return (
        _is_number(label)
        and math.isfinite(float(label))
        and any(c in label for c in ".eE")
    )


def _problem(convert, label) -> str:
    try:
        convert(label)
    except ValueError as e:
        return str(e)
    return ""
