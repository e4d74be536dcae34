"""Keeps what the original's checkpoints do not record of a head, in a file beside them.

The original gives classifiers of texts, of tokens and of choices the same two names,
stores no names of classes and takes the number of starts and ends of an answer as
flags. A folder without the file is read as the original wrote it.
"""

from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.errors import DataError
from albert_tf.heads import find
from albert_tf.storage import files
from albert_tf.storage.folders import FolderWriter

NAME = "head.json"
# Heads that have the same names.
CLASSIFIERS = ("text_classifier", "token_classifier", "multiple_choice")


def write(checkpoint: Checkpoint, out: FolderWriter) -> None:
    """Writes the file, if there is anything that the tensors' names do not show."""
    values = {
        "labels": checkpoint.labels,
        "problem_type": checkpoint.problem_type,
        "max_seq_length": checkpoint.max_seq_length,
        **checkpoint.head_options,
    }
    values = {name: value for name, value in values.items() if value is not None}
    if values or checkpoint.head in CLASSIFIERS[1:]:
        out.write_json(NAME, {"head": checkpoint.head, **values})


def read(checkpoint: Checkpoint, folder: str) -> None:
    """Adds what the file says to a checkpoint; nothing if there is no such file.

    Args:
        checkpoint: `Checkpoint`. With the head that the names of its tensors show.
        folder: str. Folder of the checkpoint.

    Raises:
        DataError: If the file is damaged, or does not fit the tensors.
    """
    path = files.join(folder, NAME)
    if not files.exists(path):
        return
    values = files.read_json(path)
    head = values.get("head")
    shown = checkpoint.head
    fitting = CLASSIFIERS if shown in CLASSIFIERS else (shown,)
    if head not in fitting:
        raise DataError(
            f"{path}: head must be one of {', '.join(map(str, fitting))} by the "
            f"tensors' names, received {head!r}"
        )
    row, count = find(head), checkpoint.num_labels
    if row.has_classifier and row.fixed_labels not in (None, count):
        raise DataError(
            f"{path}: a {head} has {row.fixed_labels} outputs, the checkpoint {count}"
        )
    labels = values.get("labels")
    if labels is not None and not (
        isinstance(labels, list)
        and all(isinstance(label, str) for label in labels)
        and len(labels) == count
    ):
        raise DataError(f"{path}: labels must be {count} strings, received {labels!r}")
    numbers = {k: values[k] for k in ("max_seq_length", *row.options) if k in values}
    for name, value in numbers.items():
        if not (type(value) is int and value > 0):
            raise DataError(
                f"{path}: {name} must be a positive integer, received {value!r}"
            )
    problem_type = values.get("problem_type")
    if not isinstance(problem_type, str | None):
        raise DataError(
            f"{path}: problem_type must be a string, received {problem_type!r}"
        )
    checkpoint.head = head
    checkpoint.labels, checkpoint.problem_type = labels, problem_type
    checkpoint.max_seq_length = numbers.pop("max_seq_length", None)
    checkpoint.head_options = numbers
