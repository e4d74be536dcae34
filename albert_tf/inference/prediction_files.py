"""The files that `predict` writes, by the name that the user chose."""

import csv
import io
import os
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.heads import HEADS
from albert_tf.inference.predictor import Predictor
from albert_tf.storage import files
from albert_tf.tasks.definitions.task import Task


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
    head = task.head
    names = [path]
    if HEADS[head].answers_spans:
        if not path.endswith(".json"):
            raise UsageError(
                f"output_file: answers to questions are written as .json, received "
                f"{path}"
            )
        stem = path.removesuffix(".json")
        names += [f"{stem}_nbest.json", f"{stem}_null_odds.json"]
    elif head == "token_classifier" and path.lower().endswith(".csv"):
        raise UsageError(
            f"output_file: tags of words are written as .tsv or .jsonl, received {path}"
        )
    elif head != "text_classifier" and path.lower().endswith(".parquet"):
        raise UsageError(
            "output_file: only predictions for texts are written as .parquet, received "
            f"{path}"
        )
    if head == "text_classifier" and files.exists(f"{path}.parts"):
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
            object per example, `.csv` for commas, anything else for tabs. For question
            answering `.json`, beside which `_nbest.json` and, where there is one,
            `_null_odds.json` are written.
        predictor: `Predictor`.
        examples: Examples of its task's family.
        answers: The answers to them.
    """
    task = predictor.task
    parts = task.family.prediction_files(task, examples, answers, predictor.options)
    if ".json" in parts:
        stem = path.removesuffix(".json")
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
