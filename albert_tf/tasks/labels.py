"""The labels of texts: what they are, as numbers, and those of a model by their names.

The index of a label means nothing by itself: MNLI's three labels are in one order in
the original code and in another in Hugging Face and TFDS.

Legend: `N` rows, `C` labels.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.tables.columns import BadRows
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Task
from albert_tf.tasks.text_tables import AUTO, TextTable

# What Hugging Face calls labels that have no name.
_GENERIC = re.compile(r"label_?(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Match:
    """How the labels of a model and those of data fit together.

    Attributes:
        labels: tuple of str. Names as the data spells them, in the model's order: the
            labels of the task, whenever this model is used for it.
        note: str. What the user should know, or an empty string.
        keep: bool. Whether the model's head is kept in training.
    """

    labels: tuple[str, ...]
    note: str = ""
    keep: bool = True


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
    convert, bad, kept, problem = _converter(task), BadRows(on_bad_input), [], ""
    for row, label in enumerate(table.labels):
        try:
            convert(label)
            kept.append(row)
        except ValueError as e:
            problem = problem or str(e)
            bad.report("rows without a good label", f"{table.where(row)}: {e}")
    if len(kept) == len(table):
        return table
    rule = f"{table.path}: no row has a good label; the first one: {problem}"
    require(kept, rule, error=DataError)
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


def find_labels(table: TextTable) -> tuple[str, ...]:
    """Returns the distinct labels, sorted; numerically if all are whole numbers.

    Raises:
        DataError: If a label is empty, or if there are fewer than two labels.
    """
    found = set()
    for row, label in enumerate(table.labels):
        if label == "":
            raise DataError(f"{table.where(row)}: the label is empty")
        found.update([label] if isinstance(label, str) else label)
    labels = sort_labels(found)
    received = f"only {labels[0]!r}" if labels else "none"
    rule = f"{table.path}: expected at least 2 different labels, received {received}"
    require(len(labels) > 1, rule, error=DataError)
    return labels


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns labels in order, which is numerical if all are whole numbers."""
    labels = sorted(labels)
    try:
        return tuple(sorted(labels, key=int))
    except ValueError:
        return tuple(labels)


def unknown_label(label, labels: Sequence[str]) -> str:
    """Says which labels there are instead of one that is not among them."""
    if label == "":
        return "the label is empty"
    known = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
    return f"expected one of the labels {known}, received {label!r:.200}"


def is_generic(labels: Sequence[str] | None) -> bool:
    """Returns whether there are no names, or only LABEL_0, LABEL_1, ..."""
    found = [_GENERIC.fullmatch(label) for label in labels or ()]
    return all(found) and [int(m[1]) for m in found] == list(range(len(found)))


def match_labels(
    model: Sequence[str] | None,
    data: Sequence[str],
    *,
    num_labels: int | None = None,
    aliases: Sequence[Sequence[str]] = (),
    model_name: str = "the model",
    data_name: str = "the data",
) -> Match:
    """Returns the labels of data in the order of a model that is to predict them.

    Args:
        model: sequence of str or None. The model's label names, in its order.
        data: sequence of str. The label names of the task or table, in its order.
        num_labels: int or None. Number of the model's outputs, if it has no names.
        aliases: sequence of sequences of str. Other known names of `data`, each in the
            order of `data`, such as ("negative", "positive") for ("0", "1").
        model_name: str. For messages.
        data_name: str. For messages.

    Raises:
        DataError: If the names differ, or one occurs twice. Names are compared as they
            are, capitals included.
    """
    model, data = tuple(model or ()), tuple(data)
    for names, where in ((model, model_name), (data, data_name)):
        rule = f"{where}: a label name occurs twice: {_list(names)}"
        require(len(set(names)) == len(names), rule, error=DataError)
    count = len(model) or num_labels
    if is_generic(model) and set(model) != set(data):
        require(
            count in (None, len(data)),
            f"{model_name}: expected {len(data)} labels, {_list(data)}, as {data_name} "
            f"has, received a head for {count} without names",
            error=DataError,
        )
        return Match(
            data,
            f"{model_name} does not name its labels; taking them to be, in this order, "
            f"{_list(data)}",
        )
    for other in (data, *map(tuple, aliases)):
        if set(other) == set(model) and len(other) == len(data):
            spelled = dict(zip(other, data, strict=True))
            labels = tuple(spelled[name] for name in model)
            return Match(labels, _order_note(model, labels, data, model_name))
    raise DataError(
        f"{model_name}: its labels are {_list(model)}, but those of {data_name} are "
        f"{_list(data)}; the same names are needed, in any order"
    )


def choose_head(
    *,
    task: str,
    labels: Sequence[str],
    problem_type: str,
    model_head: str | None,
    head: str,
    model_labels: Sequence[str] | None = None,
    model_task: str | None = None,
    model_problem_type: str | None = None,
    aliases: Sequence[Sequence[str]] = (),
    model_name: str = "the checkpoint",
) -> Match:
    """Returns whether fine-tuning starts from the head of a checkpoint.

    It does if the checkpoint is of the same task (or does not say) and has the same
    label names, in any order. Otherwise only the encoder is kept, as for RTE, STS-B and
    MRPC from a model of MNLI (arXiv:1909.11942, section 4.1).

    Args:
        task: str. Name of the task to train.
        labels: sequence of str. Its labels; none for scores.
        problem_type: str. Its problem type.
        model_head: str or None. Head of the checkpoint.
        head: str. Head of the task.
        model_labels: sequence of str or None. The checkpoint's labels.
        model_task: str or None. Task that the checkpoint was trained on, if known.
        model_problem_type: str or None. Its problem type, if known.
        aliases: See `match_labels`.
        model_name: str. For messages.
    """
    labels = tuple(labels)
    new = Match(labels, keep=False)
    if model_head != head:
        return new  # A pretrained model: nothing worth saying is lost.
    reason = ""
    if model_task is not None and model_task != task:
        reason = f"it was trained on {model_task}"
    elif model_problem_type not in (None, problem_type):
        reason = f"it is for {model_problem_type.replace('_', ' ')}"
    elif not labels and model_labels:
        reason = f"it is for the labels {_list(model_labels)}"
    elif labels and is_generic(model_labels):
        reason = "it does not name its labels"
    elif labels:
        try:
            return match_labels(
                model_labels, labels, aliases=aliases, model_name=model_name
            )
        except DataError:
            reason = f"it is for the labels {_list(model_labels)}"
    elif model_task is None and model_problem_type is None:
        reason = "it does not say what its output means"
    if not reason:
        return Match(labels)
    return dataclasses.replace(
        new,
        note=f"{model_name}: the encoder is kept, its head is replaced by a new one "
        f"for {task}: {reason}",
    )


def _order_note(model, labels, data, model_name) -> str:
    notes = []
    if labels != tuple(data):
        notes.append(f"the model's order is kept: {_list(labels)}")
    if model != labels:
        notes.append(f"{_list(model)} are read as {_list(labels)}")
    return f"{model_name}: {'; '.join(notes)}" if notes else ""


def _list(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:10])
    return f"{shown}, ... ({len(labels)})" if len(labels) > 10 else shown


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
