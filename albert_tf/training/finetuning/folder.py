"""Writes the folder of a fine-tuning run, completely or not at all."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from albert_tf.converters import load
from albert_tf.converters.checkpoint.keras_model import from_model
from albert_tf.errors import UsageError
from albert_tf.reports.environment import describe_environment
from albert_tf.reports.finetuning_curves import draw_curves
from albert_tf.storage import files, folders
from albert_tf.tasks.tables import TextTable
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_classification import predictions_table
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.finetuning.settings import FinetuneSettings

RUN_FILE = "run.json"
KIND = "finetune_text_classifier"
# Files of a run beside those of its model.
_RUN_NAMES = {
    RUN_FILE,
    "metrics.json",
    "metrics.jsonl",
    "curves.png",
    "predictions.tsv",
    "test_predictions.tsv",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        settings: `FinetuneSettings`. Resolved settings.
        task: `Task`. With its labels.
        model: Keras model. Trained.
        tokenizer: `Tokenizer`. The model's.
        history: list of dict. Measurements after each epoch.
        results: dict. Content of `metrics.json`.
    """

    settings: FinetuneSettings
    task: Task
    model: keras.Model
    tokenizer: Tokenizer
    history: list[dict[str, float]]
    results: dict[str, Any]


def check_free(path: str, overwrite: bool) -> None:
    """Checks that a run may be written to a folder.

    Args:
        path: str. Path of the folder.
        overwrite: bool. Whether a fine-tuning run may be replaced; any other content
            is never replaced.

    Raises:
        UsageError: If the folder holds something that may not be replaced.
    """
    path = _strip(path)
    if not path:
        raise UsageError("output_dir: required, but not given")
    if not files.exists(path):
        return
    names = None
    if files.is_folder(path):
        names = [n for n in files.list_folder(path) if not files.is_leftover(n)]
        if folders.INCOMPLETE in names:
            # An interrupted upload: another attempt may replace its files.
            folders.check_free(path, overwrite, _own_names(path))
            return
    if names == []:
        return
    if not overwrite:
        raise UsageError(
            f"output_dir: {path} exists already; give --overwrite or another folder"
        )
    if names is None or not _is_run(path, names):
        raise UsageError(
            f"output_dir: {path} is not a fine-tuning run and is therefore not "
            "overwritten"
        )
    folders.check_free(path, overwrite, _own_names(path))


def check_writable(path: str) -> None:
    """Checks, before hours of training, that a local folder can be created.

    Nothing is left on the disk.

    Args:
        path: str. Path of the folder.

    Raises:
        UsageError: If it cannot be created.
    """
    if files.is_remote(path):
        return
    parent = os.path.dirname(os.path.abspath(_strip(path)))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    try:
        with tempfile.TemporaryDirectory(prefix=".albert_tf-", dir=parent):
            pass
    except OSError as e:
        raise UsageError(
            f"output_dir: {path} cannot be created in {parent}: {e.strerror}"
        ) from None


def write(
    run: Run, outputs: Mapping[str, np.ndarray], examples: Mapping[str, TextTable]
) -> None:
    """Writes model, record, curves and predictions; `run.json` comes last.

    Args:
        run: `Run`. The finished run.
        outputs: dict. Logits `[N, C]` of the splits "dev" and "test".
        examples: dict. Table by split, for the known labels.
    """
    path = _strip(run.settings.output_dir)
    labels = run.task.labels
    check_free(path, run.settings.overwrite)
    # The check has decided, so leftovers of a killed run are no reason to refuse.
    own_names = _own_names(path)
    with folders.writing(path, True, own_names, last=RUN_FILE) as out:
        checkpoint = from_model(run.model, run.tokenizer, labels)
        load.write_files(checkpoint, out, "albert_tf")
        for name, logits in outputs.items():
            file = "predictions.tsv" if name == "dev" else f"{name}_predictions.tsv"
            text = predictions_table(logits, labels, examples[name].labels)
            out.write(file, text.encode())
        lines = "".join(json.dumps(line) + "\n" for line in run.history)
        out.write("metrics.jsonl", lines.encode())
        out.write_json("metrics.json", run.results)
        out.write("curves.png", draw_curves(run.history))
        record = {"kind": KIND, "settings": dataclasses.asdict(run.settings)}
        out.write_json(RUN_FILE, record | describe_environment())


def _own_names(path: str) -> set[str]:
    """What a run that is replaced may consist of; nothing else is ever deleted."""
    present = files.list_folder(path) if files.is_folder(path) else []
    leftovers = {name for name in present if files.is_leftover(name)}
    return {*folders.OWN_NAMES, *_RUN_NAMES, *leftovers}


def _strip(path: str) -> str:
    return os.fspath(path).rstrip("/")


def _is_run(path: str, names: Sequence[str]) -> bool:
    if RUN_FILE not in names:
        return False
    try:
        record = json.loads(files.read_text(files.join(path, RUN_FILE)))
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("kind") == KIND
