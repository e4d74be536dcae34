"""Brings the labels of a model and those of data together, by their names.

The index of a label means nothing by itself: MNLI's three labels are in one order in
the original code and in another in Hugging Face and TFDS.
"""

import dataclasses
import re
from collections.abc import Sequence

from albert_tf.errors import DataError

# What Hugging Face calls labels that have no name.
_GENERIC = re.compile(r"label_?(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Match:
    """How the labels of a model and those of data fit together.

    Attributes:
        labels: tuple of str. Names as the data spells them, in the model's order: the
            labels of the task, whenever this model is used for it.
        note: str. What the user should know, or an empty string.
    """

    labels: tuple[str, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class HeadChoice:
    """Whether training starts from the head of a checkpoint.

    Attributes:
        keep: bool. Whether the checkpoint's head is kept.
        labels: tuple of str. Names as the data spells them, in the order of the head.
        note: str. What the user should know, or an empty string.
    """

    keep: bool
    labels: tuple[str, ...]
    note: str = ""


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
        if len(set(names)) < len(names):
            raise DataError(f"{where}: a label name occurs twice: {_list(names)}")
    count = len(model) or num_labels
    if is_generic(model) and set(model) != set(data):
        if count is not None and count != len(data):
            raise DataError(
                f"{model_name}: expected {len(data)} labels, {_list(data)}, as "
                f"{data_name} has, received a head for {count} without names"
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
) -> HeadChoice:
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
    new = HeadChoice(False, labels)
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
            match = match_labels(
                model_labels, labels, aliases=aliases, model_name=model_name
            )
            return HeadChoice(True, match.labels, match.note)
        except DataError:
            reason = f"it is for the labels {_list(model_labels)}"
    elif model_task is None and model_problem_type is None:
        reason = "it does not say what its output means"
    if not reason:
        return HeadChoice(True, labels)
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
