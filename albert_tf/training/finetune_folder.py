"""The folder of a fine-tuning run, whose place the finished model takes.

While a run is unfinished, its folder holds its record, metrics and checkpoints and is
no model. The finished folder, with the model, takes its place in one step.
"""

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.errors import DataError, UsageError, require
from albert_tf.reports.metrics_file import METRICS_FILE, PARTS
from albert_tf.reports.run_files import REPORT_FILE
from albert_tf.storage import files, folders
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.run_folder import (
    BEST_FOLDER,
    CHECKPOINT_FOLDER,
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
# Files of a run in addition to those of its model; the last two are what
# `evaluate --exits_curve` writes. Predictions are recognized by their names.
_RUN_NAMES = {RUN_FILE, METRICS, METRICS_FILE, REPORT, REPORT_FILE, TRIALS_FILE}
_RUN_NAMES |= {"curves.png", "tensorboard", ".lock", "exits.json", "exits.png"}
_PREDICTIONS = re.compile(
    r"((dev|test|ax)(_(mis)?matched)?_)?predictions"
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
        # A link, or the current folder, cannot be replaced by renaming.
        path = os.path.realpath(path)
        folders.restore(path)
    _check_free(path, settings.overwrite)
    if not files.is_remote(path):
        _check_writable(path)
    return dataclasses.replace(settings, output_dir=path)


def _check_free(path: str, overwrite: bool) -> None:
    """Checks that a folder is free, or holds a run that may be continued or replaced.

    Nothing but a fine-tuning run is ever replaced.
    """
    if not files.exists(path):
        return
    is_folder = files.is_folder(path)
    names = files.list_folder(path) if is_folder else []
    names = {name for name in names if not files.is_leftover(name)} - {".lock"}
    if is_folder and not names:
        return
    if not is_folder or RUN_FILE not in names or not is_run(path):
        if not overwrite:
            raise UsageError(
                f"output_dir: {path} exists already; give another folder, or "
                "--overwrite to replace a fine-tuning run"
            )
        raise UsageError(
            f"output_dir: {path} is not a fine-tuning run and is therefore not "
            "overwritten"
        )
    foreign = sorted(names - own_names(path))
    if foreign:
        raise UsageError(
            f"output_dir: {path} contains {foreign[0]}, which does not belong to a "
            "fine-tuning run and would be lost at its end; move it elsewhere"
        )


def _check_writable(path: str) -> None:
    """Checks, before hours of training, that a local folder can be created.

    Nothing is left on the disk.
    """
    require(
        not os.path.ismount(path),
        f"output_dir: {path} is a mount point, which cannot be replaced by the "
        "finished folder; give a folder inside it",
    )
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
    """Puts the finished folder in the place of the unfinished one.

    Args:
        run: `RunFolder`. The run; its record is kept, and its events for TensorBoard.
        contents: dict. Contents of files by name.
        write_model: callable. Writes the files of the model, if `contents` lacks them.
    """
    path, events = run.path, _read_events(run.path)
    record = {**run.record(), "finished": True}
    replaced = own_names(path) | {name.partition("/")[0] for name in contents}
    with contextlib.ExitStack() as stack:
        if files.is_remote(path):
            # The unfinished run stays until the finished one is complete.
            local = stack.enter_context(tempfile.TemporaryDirectory())
            out = folders.FolderWriter(local)
        else:
            writing = folders.writing(path, True, replaced, last=RUN_FILE)
            out = stack.enter_context(writing)
        write_model(out)
        for name, data in {**events, **contents}.items():
            out.write(name, data)
        out.write_json(RUN_FILE, record)
        if files.is_remote(path):
            folders.copy_into(local, path, (folders.MANIFEST, RUN_FILE))
            _remove_unneeded(path)


def tidy(path: str) -> None:
    """Removes from a finished folder what its run was killed before removing."""
    tidy_finished(path)
    if files.is_remote(path) and _unneeded(path):
        # A living process that holds the lock is doing the same.
        with contextlib.suppress(UsageError), held(path):
            _remove_unneeded(path)


def _unneeded(path: str) -> list[str]:
    """Returns what in a finished remote folder only an unfinished run needs."""
    names = filter(_TEMPORARY.__contains__, files.list_folder(path))
    return [*(files.join(path, name) for name in names), *folders.leftovers(path)]


def _remove_unneeded(path: str) -> None:
    for found in _unneeded(path):
        files.remove_tree(found)


def _remove_run(path: str) -> None:
    """Removes a run, of which `prepared` has seen that nothing else is with it."""
    # Whatever happens now, this is not a finished run any more.
    record = {"kind": FinetuneSettings.kind, "settings": {}}
    files.write_text(files.join(path, RUN_FILE), json.dumps(record) + "\n")
    for name in sorted(own_names(path) - {RUN_FILE, ".lock"}) + [RUN_FILE]:
        files.remove_tree(files.join(path, name))


def own_names(path: str) -> set[str]:
    """What a run that is replaced may consist of; nothing else is ever deleted."""
    present = files.list_folder(path) if files.is_folder(path) else []
    own = {n for n in present if files.is_leftover(n) or _PREDICTIONS.fullmatch(n)}
    return {*folders.OWN_NAMES, *_RUN_NAMES, *_TEMPORARY, *own}


def _read_events(path: str) -> dict[str, bytes]:
    folder = files.join(path, "tensorboard")
    names = files.list_folder(folder) if files.is_folder(folder) else []
    return {
        f"tensorboard/{name}": files.read_bytes(files.join(folder, name))
        for name in names
        if "tfevents" in name
    }
