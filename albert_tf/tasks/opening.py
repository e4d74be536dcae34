"""Opens the data of a task: official files, prepared data sets, files of one's own."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.heads import HEADS, LABELS, TAGS
from albert_tf.storage import files
from albert_tf.tables.tfds_source import PREFIX, is_tfds, read_tfds
from albert_tf.tasks import own_files, registry
from albert_tf.tasks.own_files import DataSettings
from albert_tf.tasks.task import FileSource, Task
from albert_tf.tasks.text_tables import Portions, TableSource, WholeTable

TABLE = "table"
_GIVEN = ("train", "dev", "test")


def open_task(settings: DataSettings) -> tuple[Task, dict[str, Any]]:
    """Returns a task and the examples of its splits.

    Args:
        settings: `DataSettings` with `train_file`, `dev_file` and `test_file`, and for
            a table `labels` and `many_labels`.

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
        require(
            not is_tfds(path),
            f"{split}_file: expected a file; --data_dir={path} reads a set of "
            "TensorFlow Datasets",
        )
    if settings.task == TABLE and is_tfds(settings.data_dir):
        examples = _found(_GIVEN, lambda split: _read_set(None, settings, split))
        return own_files.labelled_task(settings, examples, {})
    if settings.task == TABLE:
        require(
            not settings.data_dir,
            "data_dir: only with a task that has official files; a table is given as "
            "train_file, dev_file and test_file",
        )
        return own_files.open_table(settings, given)
    task = registry.find_task(settings.task)
    own_files.refuse_columns(settings)
    if given:
        return task, {s: read_split(task, settings, s, p) for s, p in given.items()}
    return task, _found(task.splits, lambda split: read_split(task, settings, split))


def read_split(task: Task, settings: DataSettings, split: str, path: str = "") -> Any:
    """Returns the examples of one split, to evaluate a model or to predict.

    Args:
        task: `Task`. Task of the model.
        settings: `DataSettings`.
        split: str. Name of the split. "test" stands for "dev" where what others call a
            test set is not public.
        path: str. File to read instead of the task's.

    Raises:
        UsageError: If the settings do not fit the task, or it has no such split.
        DataError: If the data is missing or malformed.
    """
    if task.name == TABLE:
        if is_tfds(settings.data_dir):
            found = _read_set(None, settings, split)
            return own_files.named(settings, found, "", task.written)[0]
        return own_files.read_table(task, settings, path, split != "test")
    own_files.refuse_columns(settings)
    several = [name for name in task.splits if name.startswith(f"{split}_")]
    if split not in task.splits:
        if len(several) > 1 and not path:
            raise UsageError(
                f"split: {task.name} has several, expected one of {', '.join(several)},"
                f" received {split}"
            )
        if several:
            split = several[0]  # the matched part of MNLI stands for both
        elif split == "test" and "dev" in task.splits:
            split = "dev"
        else:
            raise UsageError(
                f"split: {settings.data_dir or task.name} has no split {split!r} for "
                f"the task {task.name}; expected one of {', '.join(task.splits)}"
            )
    if not path and is_tfds(settings.data_dir):
        return _read_set(task, settings, split)
    source = _with_policy(task.splits[split], split, settings)
    if not path:
        return source.read(settings.data_dir)
    found = source.read_file(path)
    if HEADS[task.head].answers != TAGS:
        return found
    return own_files.named(settings, found, path, {})[0]  # tags may be class ids


def open_portions(
    task: Task, settings: DataSettings, split: str, path: str = ""
) -> Portions:
    """Returns the examples of a split, to be read in portions.

    Texts in a file of the user's own without labels are read portion by portion; all
    else is read now, as by `read_split`.

    Args:
        task, settings, split, path: As for `read_split`.
    """
    is_own = task.name == TABLE and path and not is_tfds(settings.data_dir)
    is_own = is_own and HEADS[task.head].answers == LABELS
    if is_own and split == "test" and not files.is_folder(path):
        return settings.stream(path)
    return WholeTable(read_split(task, settings, split, path))


def read_labelled(
    task: Task, settings: DataSettings, split: str, path: str = ""
) -> Any:
    """Returns the examples of a split with which a model is evaluated.

    Args:
        task, settings, split, path: As for `read_split`.

    Raises:
        DataError: If they have no labels.
    """
    examples = read_split(task, settings, split, path)
    policy = dataclasses.replace(task.options, on_bad_input=settings.on_bad_input)
    examples = task.family.to_evaluate(task, examples, policy)
    rule = f"{examples.path}: has no labels to compare with"
    require(examples.labels is not None, rule, error=DataError)
    return examples


def _found(splits: Iterable[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Returns the examples of those splits that are there; "train" must be."""
    examples = {}
    for split in splits:
        try:
            examples[split] = read(split)
        except MissingFileError as e:
            if split == "train":
                raise
            logging.info("no %s examples: %s", split, e)
    return examples


def _with_policy(source: FileSource, split: str, settings: DataSettings) -> FileSource:
    """Returns a source that treats bad examples as asked, except in tests."""
    policy = "stop" if split.startswith("test") else settings.on_bad_input
    return dataclasses.replace(source, on_bad_input=policy)


def _read_set(task: Task | None, settings: DataSettings, split: str) -> Any:
    """Returns a split of a prepared set; without a task, of texts with labels."""
    name, there = settings.data_dir, split.replace("dev", "validation")
    if task is None:
        source = TableSource(columns=settings)
    else:
        source = task.splits[split]
        require(
            source.from_rows,
            f"data_dir: task {task.name} is not read from TensorFlow Datasets "
            f"({PREFIX}...), received {name}; give a folder with its files",
        )
        there = source.set_split(name, split)
    rows = read_tfds(name, there, settings.tfds_data_dir or None, settings.download)
    return _with_policy(source, split, settings).from_rows(rows)
