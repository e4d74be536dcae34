"""The files that `predict` writes, by the name that the user chose."""

import csv
import io
import os
from collections.abc import Collection
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.heads import CHOICES, HEADS, LABELS, SPANS, TAGS
from albert_tf.inference.predictor import Predictor
from albert_tf.storage import files
from albert_tf.tasks.task import Task

# What predictions are, and the endings of the files that they are written to.
_ENDINGS = {
    LABELS: ("predictions for texts", ("tsv", "csv", "jsonl", "parquet")),
    CHOICES: ("choices", ("tsv", "csv", "jsonl")),
    TAGS: ("tags of words", ("tsv", "jsonl")),
    SPANS: ("answers to questions", ("json",)),
}


def choose_format(path: str, noun: str, endings: Collection[str]) -> str:
    """Returns the ending of the name of an output, in lower case.

    Args:
        path: str. The file to write.
        noun: str. What is written, for the message.
        endings: collection of str. Those that can be written.

    Raises:
        UsageError: If the name ends in something else.
    """
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    if ending not in endings:
        *most, last = (f".{name}" for name in endings)
        listed = f"{', '.join(most)} or {last}" if most else last
        raise UsageError(
            f"output_file: {noun} are written as {listed}, received {path}"
        )
    return ending


def check_output(path: str, task: Task, overwrite: bool) -> None:
    """Checks, before the model is loaded, that the answers can be written.

    Args:
        path: str. As for `prediction_contents`.
        task: `Task`. Task of the model.
        overwrite: bool. Whether existing files may be replaced.

    Raises:
        UsageError: If the task has no such format, a file exists, or the folder does
            not.
    """
    check_folder(path)
    kind = HEADS[task.head].answers
    names = [path]
    choose_format(path, *_ENDINGS[kind])
    if kind == SPANS:
        stem = os.path.splitext(path)[0]
        names += [f"{stem}_nbest.json", f"{stem}_null_odds.json"]
    if kind == LABELS and files.exists(f"{path}.parts"):
        return  # a run that may go on; what is in its way is checked there
    for name in names:
        if files.exists(name) and not overwrite:
            raise UsageError(
                f"output_file: {name} exists already; give --overwrite or another name"
            )


def check_folder(path: str) -> None:
    """Raises a UsageError if the folder of an output does not exist.

    Args:
        path: str. The file to write.
    """
    folder = os.path.dirname(path)
    if folder and not files.is_remote(path) and not files.is_folder(folder):
        raise UsageError(f"output_file: {path}: there is no folder {folder}")


def prediction_contents(
    path: str, predictor: Predictor, examples: Any, answers: Any
) -> dict[str, str]:
    """Returns the contents of the files of predictions, by path.

    Args:
        path: str. The file to write. Its ending selects the format: `.jsonl` for a JSON
            object per example, `.csv` for commas, `.tsv` for tabs. For question
            answering `.json`, next to which `_nbest.json` and, where there is one,
            `_null_odds.json` are written.
        predictor: `Predictor`.
        examples: Examples of its task's family.
        answers: The answers to them.
    """
    task = predictor.task
    parts = task.family.prediction_files(task, examples, answers, predictor.options)
    if ".json" in parts:
        stem = os.path.splitext(path)[0]
        return {f"{stem}{ending}": text for ending, text in parts.items()}
    lower = path.lower()
    if lower.endswith(".jsonl"):
        return {path: parts[".jsonl"]}
    if lower.endswith(".csv"):
        return {path: _with_commas(parts[".tsv"])}
    return {path: parts[".tsv"]}


def _with_commas(table: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    rows = csv.reader(io.StringIO(table, newline=""), delimiter="\t")
    writer.writerows(rows)
    return out.getvalue()
