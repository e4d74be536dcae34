"""The folder of a fine-tuning run: free or taken, unfinished, finished.

While a run is unfinished, its folder holds its record, metrics and checkpoints and is
no model. The finished folder, with the model, takes its place in one step.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from albert_tf.converters import load
from albert_tf.converters.checkpoint.keras_model import from_model
from albert_tf.errors import UsageError
from albert_tf.storage import files, folders
from albert_tf.training.finetuning.settings import CONTENT_OF, FinetuneSettings
from albert_tf.training.run_folder import RUN_FILE, RunFolder

# Recorded in `run.json`. Earlier versions, for texts only, wrote the first.
_KINDS = ("finetune_text_classifier", "finetune")
KIND = _KINDS[-1]
CHECKPOINT_FOLDER = "checkpoints"
BEST_FOLDER = "best"
TRIALS_FOLDER = "trials"
METRICS = "metrics.json"
REPORT = "report.html"
REPORT_DATA = "report.json"
# Files of a run beside those of its model; predictions are recognized by their names.
_RUN_NAMES = frozenset(
    {
        RUN_FILE,
        METRICS,
        "metrics.jsonl",
        "curves.png",
        REPORT,
        REPORT_DATA,
        "tensorboard",
        CHECKPOINT_FOLDER,
        BEST_FOLDER,
        TRIALS_FOLDER,
        "trials.json",
        ".lock",
    }
)


def is_run(path: str) -> bool:
    """Returns whether a folder holds a fine-tuning run, finished or not."""
    try:
        record = json.loads(files.read_text(files.join(path, RUN_FILE)))
    except (ValueError, RecursionError, UsageError):
        return False
    return isinstance(record, dict) and record.get("kind") in _KINDS


def check_free(path: str, overwrite: bool) -> None:
    """Checks that a folder is free, or holds a run that may be continued or replaced.

    Args:
        path: str. Path of the folder.
        overwrite: bool. Whether another fine-tuning run may be replaced; any other
            content is never replaced.

    Raises:
        UsageError: If the folder holds something that may not be replaced.
    """
    if not files.exists(path):
        return
    names = None
    if files.is_folder(path):
        names = [n for n in files.list_folder(path) if not files.is_leftover(n)]
        if folders.INCOMPLETE in names:
            # An interrupted upload: another attempt may replace its files.
            folders.check_free(path, overwrite, own_names(path))
            return
        if not set(names) - {".lock"} or (RUN_FILE in names and is_run(path)):
            return
    if not overwrite:
        raise UsageError(
            f"output_dir: {path} exists already; give another folder, or --overwrite "
            "to replace a fine-tuning run"
        )
    raise UsageError(
        f"output_dir: {path} is not a fine-tuning run and is therefore not overwritten"
    )


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
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    try:
        with tempfile.TemporaryDirectory(prefix=".albert_tf-", dir=parent):
            pass
    except OSError as e:
        raise UsageError(
            f"output_dir: {path} cannot be created in {parent}: {e.strerror}"
        ) from None


def open_run(settings: FinetuneSettings, content: Mapping[str, Any]) -> RunFolder:
    """Opens the folder of a run, to begin it or to continue it.

    With `overwrite`, another fine-tuning run in the folder is removed.

    Args:
        settings: `FinetuneSettings`. Resolved settings.
        content: dict. Digests by the keys of `settings.CONTENT_OF`.

    Raises:
        UsageError: If the folder holds another run that may not be replaced.
    """
    path = settings.output_dir
    try:
        return _open(settings, content)
    except UsageError as e:
        if not is_run(path):
            raise
        if not settings.overwrite:
            raise UsageError(
                f"{e}; give another folder, or --overwrite to replace that run"
            ) from None
    _remove_run(path)
    return _open(settings, content)


def write(
    settings: FinetuneSettings,
    run: RunFolder,
    model,
    tokenizer,
    contents: Mapping[str, bytes],
) -> None:
    """Puts the finished folder in the place of the unfinished one.

    Args:
        settings: `FinetuneSettings`.
        run: `RunFolder`. The run; its record is kept, and its events for TensorBoard.
        model: Keras model. Trained.
        tokenizer: `Tokenizer`. The model's.
        contents: dict. Contents of other files by name.
    """
    path = settings.output_dir
    record = {**run.record(), "finished": True}
    events = _read_events(path)
    replaced = own_names(path) | set(contents)
    with folders.writing(path, True, replaced, last=RUN_FILE) as out:
        checkpoint = from_model(model, tokenizer)
        load.write_files(checkpoint, out, "albert_tf")
        for name, data in {**events, **contents}.items():
            out.write(name, data)
        out.write_json(RUN_FILE, record)


def _open(settings: FinetuneSettings, content: Mapping[str, Any]) -> RunFolder:
    run = RunFolder(
        settings.output_dir,
        settings.identity(),
        settings.defaults(),
        CONTENT_OF,
        kind=KIND,
    )
    run.check_content(content)
    return run


def _remove_run(path: str) -> None:
    replaced = own_names(path)
    for name in files.list_folder(path):
        if name not in replaced:
            raise UsageError(
                f"output_dir: {path} contains {name}, which does not belong to a "
                "fine-tuning run; the folder is not overwritten"
            )
    # The record goes last: a folder without it would be nobody's.
    for name in sorted(replaced - {RUN_FILE}) + [RUN_FILE]:
        files.remove_tree(files.join(path, name))


def own_names(path: str) -> set[str]:
    """What a run that is replaced may consist of; nothing else is ever deleted."""
    present = files.list_folder(path) if files.is_folder(path) else []
    own = {name for name in present if files.is_leftover(name)}
    own |= {name for name in present if "predictions" in name}
    return {*folders.OWN_NAMES, *_RUN_NAMES, *own}


def _read_events(path: str) -> dict[str, bytes]:
    folder = files.join(path, "tensorboard")
    names = files.list_folder(folder) if files.is_folder(folder) else []
    return {
        f"tensorboard/{name}": files.read_bytes(files.join(folder, name))
        for name in names
        if "tfevents" in name
    }
