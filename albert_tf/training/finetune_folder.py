"""The folder of a fine-tuning run, which becomes that of the finished model.

While a run is unfinished, its folder holds its record, metrics and checkpoints and is
no model. The files of the finished folder are put into it one by one, and the record
that says so is the last of them.
"""

import contextlib
import dataclasses
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.metrics_file import METRICS_FILE, PARTS
from albert_tf.reports.run_files import REPORT_FILE
from albert_tf.storage import files, folders
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.run_folder import (
    BEST_FOLDER,
    CHECKPOINT_FOLDER,
    FREE,
    RUN_FILE,
    RunFolder,
    held,
    tidy_finished,
)

TRIALS_FOLDER = "trials"
TRIALS_FILE = "trials.json"
METRICS = "metrics.json"
REPORT = "report.html"
# What only an unfinished run needs.
_TEMPORARY = (CHECKPOINT_FOLDER, BEST_FOLDER, TRIALS_FOLDER, METRICS_FILE + PARTS)
# Files of a run and of its model; the last two are what `evaluate --exits_curve`
# writes. Predictions are recognized by their names; those of the first dev set have no
# other name before them.
_RUN_NAMES = {METRICS, METRICS_FILE, REPORT, REPORT_FILE, TRIALS_FILE}
_RUN_NAMES |= {"config.json", "model.safetensors", "spiece.model", "tokenizer.json"}
_RUN_NAMES |= {folders.MANIFEST, "curves.png", "tensorboard", "exits.json", "exits.png"}
_PREDICTIONS = re.compile(
    r"((dev_mismatched|test(_(mis)?matched)?|ax)_)?predictions"
    r"(\.(tsv|jsonl|json)|_nbest\.json|_null_odds\.json)"
)


def is_run(path: str) -> bool:
    """Returns whether a folder holds a fine-tuning run, finished or not."""
    record = files.read_record(files.join(path, RUN_FILE))
    return record.get("kind") == FinetuneSettings.kind


def prepared(settings: FinetuneSettings) -> FinetuneSettings:
    """Checks settings and folder before anything is read.

    Returns:
        The settings, with the path of the folder as it will be used.

    Raises:
        UsageError: If a setting is invalid, or the folder cannot be used.
    """
    settings.check_source()
    settings.check_given()
    path = settings.output_dir.rstrip("/") or "/"
    if not files.is_remote(path):
        path = os.path.realpath(path)
        folders.restore(path)  # an earlier version may have been killed renaming it
    names = files.list_folder(path) if files.is_folder(path) else [path]
    used = any(not (name in FREE or files.is_leftover(name)) for name in names)
    if used and files.exists(path) and not is_run(path):
        raise UsageError(
            f"output_dir: {path} is not a fine-tuning run and is therefore not "
            "overwritten"
            if settings.overwrite
            else f"output_dir: {path} exists already and is not a fine-tuning run; "
            "give a new or an empty folder"
        )
    if not files.is_remote(path):
        _check_writable(path)
    return dataclasses.replace(settings, output_dir=path)


def _check_writable(path: str) -> None:
    """Checks, before hours of training, that files can be made in a local folder.

    Nothing is left on the disk.
    """
    parent = path
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    # Processes that start at the same moment know this name, and tidy it.
    probe = os.path.join(parent, f".lock-{uuid.uuid4().hex[:8]}")
    try:
        os.mkdir(probe)
        files.remove_empty_folder(probe)
    except OSError as e:
        cannot = "written" if parent == path else f"created in {parent}"
        raise UsageError(
            f"output_dir: {path} cannot be {cannot}: {e.strerror}"
        ) from None


def open_run(settings: FinetuneSettings, content: Mapping[str, Any]) -> RunFolder:
    """Opens the folder of a run, to begin it or to continue it; changes nothing.

    Args:
        settings: `FinetuneSettings`. Resolved settings.
        content: dict. See `RunFolder.check_content`.

    Returns:
        The `RunFolder`, which replaces another run in it, or a damaged one, that may be
        replaced.

    Raises:
        UsageError: If it holds another run that may not be replaced.
        DataError: If the run in it is finished, but damaged, and may not be replaced.
    """
    try:
        run = RunFolder(settings)
        run.check_content(content)
        if run.is_finished:
            folders.verify(run.path)
        else:
            run.check_versions()
        return run
    except folders.DamagedError as e:
        if not settings.overwrite:
            raise DataError(f"{e}; --overwrite makes the run again") from None
    except UsageError as e:
        if not is_run(settings.output_dir):
            raise
        if not settings.overwrite:
            raise UsageError(
                f"{e}; give another folder, or --overwrite to replace that run"
            ) from None
    run = RunFolder(settings, replaces=True)
    run.check_content(content)
    return run


@contextlib.contextmanager
def taken(run: RunFolder) -> Iterator[None]:
    """Holds the folder of a run, in which the run is begun, inside a `with` statement.

    Raises:
        UsageError: If another process holds the folder.
    """
    files.make_folder(run.path)
    with held(run.path, BEST_FOLDER, CHECKPOINT_FOLDER):
        if run.replaces:
            _remove_run(run.path)
        run.begin()
        yield


def write(
    run: RunFolder,
    contents: Mapping[str, bytes],
    write_model: Callable[[folders.FolderWriter], None] = lambda out: None,
) -> None:
    """Makes the folder of an unfinished run that of the finished one.

    What a continued run needs stays until the finished folder is complete.

    Args:
        run: `RunFolder`. The run; its record is kept, and its events for TensorBoard.
        contents: dict. Contents of files by name.
        write_model: callable. Writes the files of the model, if `contents` lacks them.
    """
    record = {**run.record(), "finished": True}
    last = ("config.json", folders.MANIFEST, RUN_FILE)
    with folders.adding(run.path, last) as out:
        write_model(out)
        for name, data in contents.items():
            out.write(name, data)
        out.write_json(RUN_FILE, record)
    _remove_unneeded(run.path)


def tidy(path: str) -> None:
    """Removes from a finished folder what its run was killed before removing."""
    tidy_finished(path)
    if set(_TEMPORARY).intersection(files.list_folder(path)):
        # A living process that holds the lock is doing the same.
        with contextlib.suppress(UsageError), held(path):
            _remove_unneeded(path)


def _remove_unneeded(path: str) -> None:
    for name in set(_TEMPORARY).intersection(files.list_folder(path)):
        files.remove_tree(files.join(path, name))


def _remove_run(path: str) -> None:
    """Removes a run that another one replaces, and nothing else."""
    # Whatever happens now, this is not a finished run any more.
    record = {"kind": FinetuneSettings.kind, "settings": {}}
    files.write_text(files.join(path, RUN_FILE), json.dumps(record) + "\n")
    own = {*_RUN_NAMES, *_TEMPORARY}
    for name in sorted(files.list_folder(path)):
        if name in own or files.is_leftover(name) or _PREDICTIONS.fullmatch(name):
            files.remove_tree(files.join(path, name))
    files.remove(files.join(path, RUN_FILE))
