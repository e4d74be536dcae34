"""The folder of a fine-tuning run: free or taken, unfinished, finished.

While a run is unfinished, its folder holds its record, metrics and checkpoints and is
no model. The finished folder, with the model, takes its place in one step.
"""

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.metrics_file import METRICS_FILE, PARTS
from albert_tf.reports.run_files import REPORT_FILE
from albert_tf.storage import files, folders
from albert_tf.training.finetune_settings import (
    CONTENT_OF,
    FOLLOWS,
    RETIRED,
    FinetuneSettings,
)
from albert_tf.training.run_folder import RUN_FILE, RunFolder, held, tidy_finished

# Recorded in `run.json`. Earlier versions, for texts only, wrote the first.
_KINDS = ("finetune_text_classifier", "finetune")
KIND = _KINDS[-1]
CHECKPOINT_FOLDER = "checkpoints"
BEST_FOLDER = "best"
TRIALS_FOLDER = "trials"
TRIALS_FILE = "trials.json"
METRICS = "metrics.json"
REPORT = "report.html"
# Files of a run beside those of its model; predictions are recognized by their names.
_PREDICTIONS = re.compile(
    r"((dev|test|ax)(_(mis)?matched)?_)?predictions"
    r"(\.(tsv|jsonl|json)|_nbest\.json|_null_odds\.json)"
)
_RUN_NAMES = frozenset(
    {
        RUN_FILE,
        METRICS,
        METRICS_FILE,
        METRICS_FILE + PARTS,
        "curves.png",
        REPORT,
        REPORT_FILE,
        "tensorboard",
        CHECKPOINT_FOLDER,
        BEST_FOLDER,
        TRIALS_FOLDER,
        TRIALS_FILE,
        # What `evaluate --exits_curve` writes beside the model.
        "exits.json",
        "exits.png",
        ".lock",
    }
)


def is_run(path: str) -> bool:
    """Returns whether a folder holds a fine-tuning run, finished or not."""
    return files.read_record(files.join(path, RUN_FILE)).get("kind") in _KINDS


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
    check_free(path, settings.overwrite)
    check_writable(path)
    return dataclasses.replace(settings, output_dir=path)


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
    if os.path.ismount(path):
        raise UsageError(
            f"output_dir: {path} is a mount point, which cannot be replaced by the "
            "finished folder; give a folder inside it"
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


def open_run(
    settings: FinetuneSettings, content: Mapping[str, Any]
) -> RunFolder | None:
    """Opens the folder of a run, to begin it or to continue it; changes nothing.

    Args:
        settings: `FinetuneSettings`. Resolved settings.
        content: dict. Digests by the keys of `settings.CONTENT_OF`.

    Returns:
        The `RunFolder`, or None if it holds another run, or a damaged one, that may be
        replaced.

    Raises:
        UsageError: If it holds another run that may not be replaced.
        DataError: If the run in it is finished, but damaged, and may not be replaced.
    """
    try:
        run = _open(settings, content)
        if run.is_finished:
            folders.verify(run.path)
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
    return None


@contextlib.contextmanager
def taken(
    settings: FinetuneSettings,
    content: Mapping[str, Any],
    run: RunFolder | None,
    origin: str | None = None,
) -> Iterator[RunFolder]:
    """Holds the folder of a run, in which the run is begun, inside a `with` statement.

    Args:
        settings: `FinetuneSettings`. Resolved settings.
        content: dict. As for `open_run`.
        run: `RunFolder` or None. What `open_run` returned; for None, the other run in
            the folder is removed.
        origin: str or None. See `RunFolder`.

    Raises:
        UsageError: If another process holds the folder.
    """
    path = settings.output_dir
    files.make_folder(path)
    with held(path, BEST_FOLDER, CHECKPOINT_FOLDER):
        if run is None:
            _remove_run(path)
            run = _open(settings, content)
        run.origin = origin
        run.begin()
        yield run


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
    from albert_tf.converters import load
    from albert_tf.converters.keras_model import from_model

    with _writing(settings, run, contents) as out:
        checkpoint = from_model(model, tokenizer)
        load.write_files(checkpoint, out, "albert_tf")


@contextlib.contextmanager
def _writing(
    settings: FinetuneSettings, run: RunFolder, contents: Mapping[str, bytes]
) -> Iterator[folders.FolderWriter]:
    """Yields a writer of the finished folder, to which the other contents are added."""
    path = settings.output_dir
    events = _read_events(path)
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
        yield out
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
    only = (CHECKPOINT_FOLDER, BEST_FOLDER, TRIALS_FOLDER, METRICS_FILE + PARTS)
    names = filter(only.__contains__, files.list_folder(path))
    return [*(files.join(path, name) for name in names), *folders.leftovers(path)]


def _remove_unneeded(path: str) -> None:
    for found in _unneeded(path):
        files.remove_tree(found)


def write_contents(
    settings: FinetuneSettings, run: RunFolder, contents: Mapping[str, bytes]
) -> None:
    """Puts a finished folder of ready files in the place of the unfinished one.

    Args:
        settings: `FinetuneSettings`.
        run: `RunFolder`. The run; its record is kept.
        contents: dict. Contents of all other files by name.
    """
    with _writing(settings, run, contents):
        pass


def _open(settings: FinetuneSettings, content: Mapping[str, Any]) -> RunFolder:
    run = RunFolder(
        settings.output_dir,
        settings.identity(),
        settings.defaults(),
        CONTENT_OF,
        kind=KIND,
        follows=FOLLOWS,
        retired=RETIRED,
    )
    run.check_content(content)
    if not run.is_finished:
        run.check_versions(settings.allow_other_versions)
    return run


def _remove_run(path: str) -> None:
    """Removes a run, of which `check_free` has seen that nothing else is with it."""
    # Whatever happens now, this is not a finished run any more.
    files.write_text(
        files.join(path, RUN_FILE), json.dumps({"kind": KIND, "settings": {}}) + "\n"
    )
    for name in sorted(own_names(path) - {RUN_FILE, ".lock"}) + [RUN_FILE]:
        files.remove_tree(files.join(path, name))


def own_names(path: str) -> set[str]:
    """What a run that is replaced may consist of; nothing else is ever deleted."""
    present = files.list_folder(path) if files.is_folder(path) else []
    own = {name for name in present if files.is_leftover(name)}
    own |= {name for name in present if _PREDICTIONS.fullmatch(name)}
    return {*folders.OWN_NAMES, *_RUN_NAMES, *own}


def _read_events(path: str) -> dict[str, bytes]:
    folder = files.join(path, "tensorboard")
    names = files.list_folder(folder) if files.is_folder(folder) else []
    return {
        f"tensorboard/{name}": files.read_bytes(files.join(folder, name))
        for name in names
        if "tfevents" in name
    }
