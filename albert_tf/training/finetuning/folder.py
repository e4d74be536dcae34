"""The folder of a fine-tuning run: all of it or nothing."""

import dataclasses
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.reports.environment import describe_environment
from albert_tf.reports.finetuning_curves import draw_curves
from albert_tf.storage import files
from albert_tf.tasks.tables import TextTable
from albert_tf.tasks.text_classification import predictions_table
from albert_tf.training.finetuning.settings import FinetuneSettings

RUN_FILE = "run.json"
KIND = "finetune_text_classifier"


def check_free(path: str, overwrite: bool) -> None:
    """Raises a UsageError if the folder may not be made.

    Args:
        path: Of the folder.
        overwrite: Whether a fine-tuning run of ours may be replaced; nothing else is.
    """
    path = _strip(path)
    if not path:
        raise UsageError("output_dir: required, but not given")
    if not files.exists(path):
        return
    names = files.list_folder(path) if files.is_folder(path) else None
    if names == []:
        return
    if not overwrite:
        raise UsageError(f"output_dir: {path} exists already and would be overwritten")
    if names is None or not _is_run(path, names):
        raise UsageError(
            f"output_dir: {path} is not a fine-tuning run, and so is not overwritten"
        )


def write(
    settings: FinetuneSettings,
    model,
    tokenizer,
    labels: Sequence[str],
    history: list[dict[str, float]],
    results: dict[str, Any],
    outputs: dict[str, np.ndarray],
    dev: TextTable | None,
) -> None:
    """Writes model, record, curves and predictions under their final name.

    Args:
        settings: Of the run.
        model, tokenizer, labels: What was trained.
        history: A line an epoch.
        results: For `metrics.json`.
        outputs: Logits `[N, C]` of `"dev"` and `"test"`.
        dev: The dev table, for its labels.
    """
    path = _strip(settings.output_dir)
    # Buckets cannot rename folders: there `run.json`, written last, says it is whole.
    remote = files.is_remote(path)
    temporary = path if remote else f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    try:
        load.save_pretrained(
            model, temporary, tokenizer=tokenizer, labels=labels, overwrite=remote
        )
        for name, logits in outputs.items():
            known = dev.labels if name == "dev" else None
            file = "predictions.tsv" if name == "dev" else f"{name}_predictions.tsv"
            files.write_text(
                files.join(temporary, file), predictions_table(logits, labels, known)
            )
        lines = "".join(json.dumps(line) + "\n" for line in history)
        files.write_text(files.join(temporary, "metrics.jsonl"), lines)
        _write_json(files.join(temporary, "metrics.json"), results)
        files.write_bytes(files.join(temporary, "curves.png"), draw_curves(history))
        record = {"kind": KIND, "settings": dataclasses.asdict(settings)}
        record |= describe_environment()
        _write_json(files.join(temporary, RUN_FILE), record)
        if not remote:
            files.replace_folder(temporary, path)
    except BaseException:
        if not remote:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_json(path: str, content) -> None:
    files.write_text(path, json.dumps(content, indent=2) + "\n")


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
