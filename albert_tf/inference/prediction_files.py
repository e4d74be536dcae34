"""The files that `predict` writes, by the name that the user chose."""

import csv
import io
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.inference.predictor import Predictor


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

    Raises:
        UsageError: If the task has no such format.
    """
    task = predictor.task
    parts = task.family.prediction_files(task, examples, answers, predictor.options)
    if ".json" in parts:
        if not path.endswith(".json"):
            raise UsageError(
                f"output_file: answers to questions are written as .json, received "
                f"{path}"
            )
        stem = path.removesuffix(".json")
        return {f"{stem}{ending}": text for ending, text in parts.items()}
    lower = path.lower()
    if lower.endswith(".jsonl"):
        return {path: parts[".jsonl"]}
    if lower.endswith(".csv"):
        if task.head == "token_classifier":
            raise UsageError(
                f"output_file: tags of words are written as .tsv or .jsonl, received "
                f"{path}"
            )
        return {path: _with_commas(parts[".tsv"])}
    return {path: parts[".tsv"]}


def _with_commas(table: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    rows = csv.reader(io.StringIO(table, newline=""), delimiter="\t")
    writer.writerows(rows)
    return out.getvalue()
