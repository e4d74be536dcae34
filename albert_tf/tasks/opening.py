"""Opens the data of a task: official files, prepared data sets, files of one's own."""

import dataclasses
from typing import Any, Protocol

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError
from albert_tf.heads import HEADS, TAGS
from albert_tf.storage import files
from albert_tf.tables.tfds_source import is_tfds
from albert_tf.tasks import own_files, prepared, registry
from albert_tf.tasks.task import Task
from albert_tf.tasks.texts.text_table import Portions, WholeTable

TABLE = "table"
_GIVEN = ("train", "dev", "test")


class DataSettings(Protocol):
    """What must be known to open the data; see `finetuning.settings`."""

    task: str
    data_dir: str
    tfds_data_dir: str
    download: bool
    on_bad_input: str


def open_task(settings) -> tuple[Task, dict[str, Any]]:
    """Returns a task and the examples of its splits.

    Args:
        settings: `DataSettings` with `train_file`, `dev_file` and `test_file`, and the
            columns of `own_files`.

    Returns:
        The `Task`, with its labels, and the examples by the name of the split. A split
        whose file does not exist is left out, except for "train".

    Raises:
        UsageError: If the settings do not fit the task.
        DataError: If the data is missing or malformed.
    """
    given = {s: getattr(settings, f"{s}_file", "") for s in _GIVEN}
    given = {split: path for split, path in given.items() if path}
    for split, path in given.items():
        if is_tfds(path):
            raise UsageError(
                f"{split}_file: expected a file; --data_dir={path} reads a set of "
                "TensorFlow Datasets"
            )
    if settings.task == TABLE:
        if is_tfds(settings.data_dir):
            return prepared.open_table(settings.data_dir, settings)
        if settings.data_dir:
            raise UsageError(
                "data_dir: only with a task that has official files; a table is given "
                "as train_file, dev_file and test_file"
            )
        return own_files.open_table(settings, given)
    task = registry.find_task(settings.task)
    own_files.refuse_columns(settings)
    if is_tfds(settings.data_dir):
        return task, prepared.read(task, settings.data_dir, settings)
    task = _with_policy(task, settings.on_bad_input)
    if given:
        return task, {
            split: _read_file(task, settings, split, path)
            for split, path in given.items()
        }
    examples = {}
    for split, source in task.splits.items():
        try:
            examples[split] = source.read(settings.data_dir)
        except MissingFileError:
            if split == "train":
                raise
            logging.info("%s: no %s examples", settings.data_dir, split)
    return task, examples


def read_split(task: Task, settings, split: str, path: str = "") -> Any:
    """Returns the examples of one split, to evaluate a model or to predict.

    Args:
        task: `Task`. Task of the model.
        settings: `DataSettings` with the columns of `own_files`.
        split: str. Name of the split.
        path: str. File to read instead of the task's.
    """
    if task.name == TABLE and is_tfds(settings.data_dir):
        return prepared.read_table(task, settings.data_dir, settings, split)
    if task.name == TABLE:
        return own_files.read_table(task, settings, path, split != "test")
    own_files.refuse_columns(settings)
    several = [name for name in task.splits if name.startswith(f"{split}_")]
    if split not in task.splits and len(several) > 1 and not path:
        raise UsageError(
            f"split: {task.name} has several, expected one of {', '.join(several)}, "
            f"received {split}"
        )
    if is_tfds(settings.data_dir):
        return prepared.read_split(task, settings.data_dir, settings, split)
    task = _with_policy(task, settings.on_bad_input)
    if path:
        return _read_file(task, settings, split, path)
    return _source(task, split).read(settings.data_dir)


def open_portions(task: Task, settings, split: str, path: str = "") -> Portions:
    """Returns the texts of a split, to be read in portions.

    A file of the user's own without labels is read portion by portion; all else is
    read now, as by `read_split`.

    Args:
        task, settings, split, path: As for `read_split`; `task` is of the family of
            texts.
    """
    is_own = task.name == TABLE and path and not is_tfds(settings.data_dir)
    if is_own and split == "test" and not files.is_folder(path):
        return own_files.stream_texts(settings, path)
    return WholeTable(read_split(task, settings, split, path))


def read_labelled(task: Task, settings, split: str, path: str = "") -> Any:
    """Returns the examples of a split with which a model is evaluated.

    Args:
        task, settings, split, path: As for `read_split`.

    Raises:
        DataError: If they have no labels.
    """
    examples = read_split(task, settings, split, path)
    policy = dataclasses.replace(task.options, on_bad_input=settings.on_bad_input)
    examples = task.family.to_evaluate(task, examples, policy)
    if examples.labels is None:
        raise DataError(f"{examples.path}: has no labels to compare with")
    return examples


def _with_policy(task: Task, on_bad_input: str) -> Task:
    """Returns a task whose sources treat bad examples as asked, except in tests."""
    splits = {
        split: source
        if split.startswith("test")
        else dataclasses.replace(source, on_bad_input=on_bad_input)
        for split, source in task.splits.items()
    }
    options = dataclasses.replace(task.options, on_bad_input=on_bad_input)
    return dataclasses.replace(task, splits=splits, options=options)


def _read_file(task: Task, settings, split: str, path: str) -> Any:
    """Returns the examples in a file; tags that are class ids get names."""
    found = _source(task, split).read_file(path)
    if HEADS[task.head].answers != TAGS:
        return found
    return own_files.named(settings, found, path, {})[0]


def _source(task: Task, split: str):
    if split in task.splits:
        return task.splits[split]
    # The matched part of MNLI stands for both; SQuAD's test questions are not public.
    for name, source in task.splits.items():
        if name.startswith(f"{split}_"):
            return source
    if split == "test" and "dev" in task.splits:
        return task.splits["dev"]
    raise UsageError(
        f"task: {task.name} has no split {split}; expected one of "
        f"{', '.join(task.splits)}"
    )
