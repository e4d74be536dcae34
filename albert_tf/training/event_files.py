"""Removes from TensorBoard's files the steps that a resumed run repeats."""

import contextlib
import os
from collections.abc import Collection, Iterable

import tensorflow as tf

from albert_tf.storage import calls, files

_KEPT = "events.out.tfevents.0000000000.before-resume"


def drop_later_steps(
    folder: str | os.PathLike, last_step: int, early: Collection[int] = ()
) -> None:
    """Rewrites event files without the steps after the one a run continues from.

    TensorBoard would show such a step twice. The remaining events are moved into one
    file, and of several events of the same step and name the last one is kept.

    Args:
        folder: str. Folder of the event files; may be missing.
        last_step: int. Step at which the run continues.
        early: Collection of int. Steps whose training values are dropped, too, because
            those of the next step on record cover them.
    """
    names = files.list_folder(folder) if files.is_folder(folder) else []
    paths = [files.join(folder, name) for name in names if "tfevents" in name]
    kept: dict[tuple, bytes] = {}
    for path in paths:
        for content in calls.repeated(_read, path):
            event = tf.compat.v1.Event.FromString(content)
            if not event.HasField("summary"):
                kept.setdefault(("version",), content)
            elif event.step <= last_step:
                tags = tuple(value.tag for value in event.summary.value)
                if event.step in early and tags[0].startswith("train/"):
                    continue
                kept.pop((event.step, tags), None)
                kept[event.step, tags] = content
    if not paths:
        return
    target = files.join(folder, _KEPT)
    temporary = files.join(folder, ".before-resume.partial")
    calls.repeated(_write, temporary, kept.values())
    files.rename(temporary, target)
    for path in paths:
        if path != target:
            files.remove(path)


def _read(path: str) -> list[bytes]:
    contents = []
    # The last event of a killed run may be incomplete.
    with contextlib.suppress(tf.errors.DataLossError):
        for record in tf.data.TFRecordDataset(path):
            contents.append(record.numpy())
    return contents


def _write(path: str, contents: Iterable[bytes]) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for content in contents:
            writer.write(content)
