"""The labels of texts: their kinds, their numbers, and how names match a model's.

The index of a label means nothing by itself: MNLI's three labels are in one order in
the original code and in another in Hugging Face and TFDS.

Legend: `N` rows, `C` labels.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.tables.class_ids import are_vectors
from albert_tf.tables.columns import BadRows
from albert_tf.tasks.task import (
    MOST_RELEVANT,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    EncodedExamples,
    Task,
)
from albert_tf.tasks.text_tables import AUTO, TextTable, label_key

# Hugging Face's names of labels that have no name.
_GENERIC = re.compile(r"label_?(\d+)", re.IGNORECASE)
# Separators between several labels in a cell.
_JOINED = re.compile(r"\s*[,;|]\s*")
# Numbers, of which some are written in a way that is not read as a number.
_WRITTEN = re.compile(r"[-+\u2212]?\d+([.,]\d+)?\s?%?")


def make_targets(task: Task, table: TextTable) -> np.ndarray:
    """Returns labels as numbers: int32 `[N]`, scores float32 `[N]` or flags `[N, C]`.

    Raises `DataError` if a label is missing or unknown, or a score is not finite.
    """
    number = _numbers(task, table)
    values = []
    for row in range(len(table)):
        try:
            values.append(number(row))
        except DataError as e:
            raise DataError(f"{table.where(row)}: {e}") from None
    return np.array(values, np.int32 if task.problem_type == SINGLE_LABEL else "f4")


def usable(task: Task, table: TextTable, on_bad_input: str = "stop") -> TextTable:
    """Returns the table without the rows that have no valid label.

    A table without labels is returned unchanged. If `on_bad_input` is "skip", rows are
    left out and counted in `skipped`. Raises `DataError` if a row has no valid label
    and is not skipped, or no row has one.
    """
    if table.labels is None:
        return table
    bad, number = BadRows(on_bad_input), _numbers(task, table)
    ranked = table.groups is not None and task.problem_type == REGRESSION
    message = "group_column: expected relevance as label, a whole number from 0 to "
    message += f"{MOST_RELEVANT:,}"

    def check(row: int) -> int:
        value = number(row)
        fits = not ranked or (0 <= value <= MOST_RELEVANT and value.is_integer())
        require(fits, message, table.labels[row], error=DataError)
        return row

    why, rows = "rows without a valid label", range(len(table))
    valid_rows = list(bad.usable(why, rows, check, table.where))
    if len(valid_rows) == len(table):
        return table
    message = f"{table.path}: no row has a valid label; first error: {bad.first}"
    require(valid_rows, message, error=DataError)
    return table.kept(valid_rows, bad.counts)


def choose_problem_type(table: TextTable, given: str = AUTO) -> str:
    """Returns the kind of labels in a training table, and logs the choice.

    With `AUTO` the labels decide: lists are several labels per row; numbers, at least
    one of them with a decimal point or an exponent, are scores (in Hugging Face's
    run_classification, the column's type decides); anything else is a class. Raises
    `DataError` if the labels are of two kinds, or do not fit `given`.
    """
    labels = table.labels
    has_lists = any(not isinstance(label, str) for label in labels)
    if given != AUTO:
        received = "lists" if has_lists else "single labels"
        hint = "" if has_lists else " (--label_separator divides cells)"
        rule = f"{table.path}: problem_type={given} does not fit the labels, which are "
        fits = (given == MULTI_LABEL) == has_lists
        require(fits, rule + received + hint, error=DataError)
        if has_lists:
            _check_lists(table)
        return given
    if has_lists:
        _check_lists(table)
        logging.info("%s: rows have several labels (lists)", table.path)
        return MULTI_LABEL
    decimals = sum(map(_is_decimal, labels))
    numbers = sum(map(_is_number, labels))
    if numbers < len(labels):
        look_alike = all(map(_WRITTEN.fullmatch, labels))
        if not (decimals or look_alike):
            return SINGLE_LABEL
        why = f"but {decimals} rows have numbers with decimal points"
        why = "a number, but scores have a point and no sign" if look_alike else why
        row = next(i for i, label in enumerate(labels) if not _is_number(label))
        raise DataError(
            f"{table.where(row)}: the label is {labels[row]!r:.100}, {why}; give "
            "--problem_type=regression for scores or "
            f"--problem_type={SINGLE_LABEL} for classes (--label_separator divides "
            "several labels)"
        )
    reading = ("whole numbers", "classes", REGRESSION, "scores")
    if decimals:
        reading = ("numbers with decimal points", "scores", SINGLE_LABEL, "classes")
    logging.info(
        "%s: the %s in the label column are read as %s; --problem_type=%s reads them "
        "as %s",
        table.path,
        *reading,
    )
    return REGRESSION if decimals else SINGLE_LABEL


def _check_lists(table: TextTable) -> None:
    """Raises a `DataError` if lists hold a number for each class instead of labels."""
    is_vector = are_vectors(table.labels)
    for row, label in enumerate(table.labels):
        message = (
            f"{table.where(row)}: expected the names or ids of the labels of a row, "
            f"received a number for each class, {list(label)!r:.100}; --labels=A,B,... "
            "names the classes of lists of 0 and 1, in their order"
        )
        fits = not (is_vector or any(map(_is_decimal, label)))
        require(fits, message, error=DataError)


def find_labels(table: TextTable) -> tuple[str, ...]:
    """Returns the distinct labels, sorted; numerically if all are whole numbers.

    Raises `DataError` if a label is empty, or if there are fewer than two labels.
    """
    distinct = set()
    for row, label in enumerate(table.labels):
        if label == "":
            raise DataError(f"{table.where(row)}: the label is empty")
        is_nan = isinstance(label, str) and label.lower() == "nan"
        if is_nan and all(_is_number(x) for x in table.labels if isinstance(x, str)):
            raise DataError(f"{table.where(row)}: the label is {label}, not a number")
        distinct.update([label] if isinstance(label, str) else label)
    spellings = {label_key(label): label for label in sorted(distinct, reverse=True)}
    labels = sort_labels(spellings.values())
    parts_of = {label: {*_JOINED.split(label)} for label in labels}
    counts = Counter(part for parts in parts_of.values() for part in parts)
    folded: dict[str, str] = {}
    for label in labels:
        if label.lower() == "nan":
            text = "%s: %r is read as a label; pandas writes it for a missing one"
            logging.warning(text, table.path, label)
        if (other := folded.setdefault(label.casefold(), label)) != label:
            text = "%s: %r and %r are two labels, which differ in capitals only"
            logging.warning(text, table.path, other, label)
        if len(parts_of[label]) > 1 and min(map(counts.get, parts_of[label])) > 1:
            text = "%s: the label %r joins others; --label_separator divides labels"
            logging.warning(text, table.path, label)
    received = f"only {labels[0]!r}" if labels else "none"
    message = f"{table.path}: expected at least 2 different labels, received {received}"
    require(len(labels) > 1, message, error=DataError)
    return labels


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels sorted, numerically if all are whole numbers."""
    labels = sorted(labels)
    try:
        return tuple(sorted(labels, key=int))
    except ValueError:
        return tuple(labels)


def is_generic(labels: Sequence[str] | None) -> bool:
    """Returns whether there are no names, or only LABEL_0, LABEL_1, ..."""
    matches = [_GENERIC.fullmatch(label) for label in labels or ()]
    return all(matches) and [int(m[1]) for m in matches] == list(range(len(matches)))


def match_labels(
    model: Sequence[str] | None,
    task: Task,
    *,
    num_labels: int | None = None,
    model_name: str = "the model",
) -> tuple[tuple[str, ...], str]:
    """Returns the labels of a task in the order of a model that is to predict them.

    They have the task's spelling; a note for the user, or "", follows. `num_labels` is
    the number of the model's outputs if it has no names. Raises `DataError` if the
    names differ by more than capitals, or one occurs twice.
    """
    model, data, task_name = tuple(model or ()), task.labels, f"task {task.name}"
    for names, where in ((model, model_name), (data, task_name)):
        message = f"{where}: a label name occurs twice: {_list(names)}"
        require(len(set(names)) == len(names), message, error=DataError)
    count = len(model) or num_labels
    if is_generic(model) and set(model) != set(data):
        need = (
            f"{model_name}: expected {len(data)} labels, {_list(data)}, as {task_name} "
            f"has, received a head for {count} without names"
        )
        require(count in (None, len(data)), need, error=DataError)
        return data, (
            f"{model_name} does not name its labels; taking them to be, in this order, "
            f"{_list(data)}"
        )
    others = (data, task.other_labels) if len(model) == len(data) else ()
    # MNLI models on the hub use ENTAILMENT, entailment and Entailment.
    for fold, other in itertools.product((str, str.casefold), others):
        spelled = dict(zip(map(fold, other), data, strict=False))
        if spelled.keys() == {*map(fold, model)} and len(spelled) == len(data):
            labels = tuple(spelled[fold(name)] for name in model)
            notes = []
            if labels != data:
                notes.append(f"the model's order is kept: {_list(labels)}")
            if model != labels:
                notes.append(f"{_list(model)} are read as {_list(labels)}")
            return labels, f"{model_name}: {'; '.join(notes)}" if notes else ""
    raise DataError(
        f"{model_name}: its labels are {_list(model)}, but {task_name} has the labels "
        f"{_list(data)}; the same names are needed, in any order"
    )


def choose_head(task: Task, model: Any) -> tuple[tuple[str, ...] | None, str]:
    """Decides whether fine-tuning starts from the head of a checkpoint.

    It does if the checkpoint is of the same task (or does not name one) and has the
    same label names, in any order. Otherwise only the encoder is kept, as for RTE,
    STS-B and MRPC from a model of MNLI (arXiv:1909.11942, section 4.1). Returns the
    labels in the order of the head, or None if it is not kept; and a note, or "".
    """
    if model.head != task.head:
        return None, ""  # a pretrained model, whose head is never kept
    trained_on = (model.task or {}).get("name")
    reason = ""
    if trained_on not in (None, task.name):
        reason = f"it was trained on {trained_on}"
    elif model.problem_type not in (None, task.problem_type):
        reason = f"it is for {model.problem_type.replace('_', ' ')}"
    elif not task.labels and model.labels:
        reason = f"it is for the labels {_list(model.labels)}"
    elif task.labels and is_generic(model.labels):
        reason = "it does not name its labels"
    elif task.labels:
        try:
            return match_labels(model.labels, task, model_name=model.path)
        except DataError:
            reason = f"it is for the labels {_list(model.labels)}"
    elif trained_on is None and model.problem_type is None:
        reason = "it does not say what its output means"
    if not reason:
        return task.labels, ""
    return None, (
        f"{model.path}: the encoder is kept, its head is replaced by a new one for "
        f"{task.name}: {reason}"
    )


def _list(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:10])
    return f"{shown}, ... ({len(labels)})" if len(labels) > 10 else shown


def _numbers(task: Task, table: TextTable) -> Callable[[int], Any]:
    """Returns a function from a row to the number of its label."""
    index = {label_key(label): i for i, label in enumerate(task.labels)}
    return lambda row: _number(table.labels[row], task, index)


def _number(label: Any, task: Task, index: Mapping[str, int]) -> Any:
    """Returns the number of a label, or raises a `DataError`."""
    is_text, kind = isinstance(label, str), task.problem_type
    shown = label if is_text else list(label)
    if kind == REGRESSION:
        is_number = is_text and _is_number(label)
        if is_number and abs(float(label)) <= float(np.finfo(np.float32).max):
            return float(label)
        wanted = "a finite number" if is_number else "a number"
        raise DataError(f"expected {wanted} as score, received {shown!r:.200}")
    if is_text and kind == MULTI_LABEL:
        raise DataError(f"expected a list of labels, received {label!r:.200}")
    if not is_text and kind != MULTI_LABEL:
        raise DataError(f"expected one label, received the list {shown!r:.200}")
    keys = list(map(label_key, [label] if is_text else label))
    for name, key in zip([label] if is_text else label, keys, strict=True):
        if key not in index:
            raise DataError(_unknown(name, task.labels))
    if is_text:
        return index[keys[0]]
    values = np.zeros(len(task.labels), np.float32)
    values[[index[key] for key in keys]] = 1
    return values


def class_weights(
    items: Sequence[str], task: Task, train: EncodedExamples
) -> tuple[float, ...]:
    """Returns the weight of each class, in the order of the task's labels.

    The items are `label=weight`, where a label without one has 1; or `balanced` alone,
    for weights inversely proportional to the frequency of the classes, with mean 1 over
    the examples (scikit-learn's definition). Without items, there are no weights.
    Raises `UsageError` if the task has no classes, or a label or weight is invalid.
    """
    if not items:
        return ()
    has_classes = task.problem_type == SINGLE_LABEL or task.head == "token_classifier"
    need = "class_weights: the task must have one class per text or word"
    require(has_classes, need, task.name)
    if list(items) == ["balanced"]:
        labels = train.targets[features.LABELS]
        counts = np.bincount(labels[labels >= 0], minlength=len(task.labels))
        missing = task.labels[int(np.argmin(counts))]
        need = "class_weights=balanced: no training example has the label"
        require(counts.all(), f"{need} {missing!r}")
        return tuple((counts.sum() / (len(counts) * counts)).tolist())
    weights = dict.fromkeys(task.labels, 1.0)
    for item in items:
        name, _, text = item.rpartition("=")
        weight = float(text) if _is_number(text) else math.nan
        message = (
            "class_weights: must be balanced, or label=weight with a label among "
            f"{', '.join(task.labels)} and a number of at least 0"
        )
        require(name in weights and 0 <= weight < math.inf, message, item)
        weights[name] = weight
    return tuple(weights.values())


def _unknown(label: str, labels: Sequence[str]) -> str:
    """Returns a message that lists the labels instead of an unknown one."""
    if label == "":
        return "the label is empty"
    names = ", ".join(labels[:10]) + (", ..." if len(labels) > 10 else "")
    return f"expected one of the labels {names}, received {label!r:.200}"


def _is_number(label: str) -> bool:
    """Returns whether a label is a number; unlike float(), it does not accept "1_0"."""
    try:
        float(label)
    except ValueError:
        return False
    return "_" not in label


def _is_decimal(label: str) -> bool:
    is_finite = _is_number(label) and math.isfinite(float(label))
    return is_finite and any(c in label for c in ".eE")
