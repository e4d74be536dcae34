"""Tasks from prepared sets of TensorFlow Datasets."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.errors import MissingFileError, UsageError
from albert_tf.tables.tfds_source import PREFIX, read_tfds
from albert_tf.tasks import own_files
from albert_tf.tasks.task import Task
from albert_tf.tasks.texts import glue
from albert_tf.tasks.texts.tables import LabelledTableSettings, TfdsTableSource

_GLUE = frozenset(task.name for task in glue.TASKS)
# Names of splits here -> in TensorFlow Datasets.
_SPLITS = {"dev": "validation"}


def read(
    task: Task, name: str, settings, splits: Sequence[str] | None = None
) -> dict[str, Any]:
    """Returns the examples of a task, by the name of the split.

    Args:
        task: `Task`.
        name: str. `tfds:set/config`.
        settings: With `tfds_data_dir`, `download` and `on_bad_input`, and for a table
            of one's own the columns of `LabelledTableSettings`.
        splits: sequence of str or None. Which splits; None for all.

    Raises:
        UsageError: If there is no way to read the task from such a set.
        DataError: If the set is not prepared, or malformed.
    """
    folder, download = settings.tfds_data_dir or None, settings.download
    if task.name in _GLUE:
        sources = glue.tfds_splits(task, name, folder, download)
        wanted = [s for s in sources if splits is None or s in splits]
        return _found(
            {s: _with_policy(sources[s], s, settings).read for s in wanted}, splits
        )
    wanted = [s for s in task.splits if splits is None or s in splits]
    readers = {}
    for split in wanted:
        there = split if task.name == "race" else _SPLITS.get(split, split)
        readers[split] = functools.partial(read_tfds, name, there, folder, download)
    rows = _found(readers, splits)
    examples = {}
    for split, found in rows.items():
        source = _with_policy(task.splits[split], split, settings)
        if source.from_rows is None:
            raise UsageError(
                f"data_dir: task {task.name} is not read from TensorFlow Datasets "
                f"({PREFIX}...), received {found.name}; give a folder with its files"
            )
        examples[split] = source.from_rows(found)
    return examples


def read_split(task: Task, name: str, settings, split: str) -> Any:
    """Returns the examples of one split; see `read`.

    Args:
        task: `Task`.
        name: str. `tfds:set/config`.
        settings: See `read`.
        split: str. "dev" or "test" stand for the only such split.

    Raises:
        UsageError: If the set has no such split.
    """
    names = [s for s in task.splits if s == split or s.startswith(f"{split}_")]
    found = read(task, name, settings, names[:1]) if names else {}
    if split == "test" and not found and "dev" in task.splits:
        # What others call a test set is not public.
        found = read(task, name, settings, ["dev"])
    if not found:
        raise UsageError(
            f"split: {name} has no split {split!r} for the task {task.name}; expected "
            f"one of {', '.join(task.splits)}"
        )
    return next(iter(found.values()))


def read_table(task: Task, name: str, settings, split: str) -> Any:
    """Returns one split of a set of texts, such as `tfds:imdb_reviews`.

    Args:
        task: `Task`. Task of the model.
        name: str. See `read`.
        settings: See `open_table`.
        split: str. Name of the split, here or in the set.
    """
    found = _table_source(name, settings, _SPLITS.get(split, split)).read()
    return own_files.named(settings, found, "", task.written)[0]


def open_table(name: str, settings) -> tuple[Task, dict[str, Any]]:
    """Returns the task of a set of texts with labels, such as `tfds:imdb_reviews`.

    Args:
        name: str. See `read`.
        settings: `LabelledTableSettings` whose columns are features of the set, with
            `labels`, `many_labels`, `on_bad_input`, `tfds_data_dir` and `download`.
    """
    examples = {}
    for split, there in (("train", "train"), ("dev", "validation"), ("test", "test")):
        source = _table_source(name, settings, there)
        try:
            examples[split] = _with_policy(source, split, settings).read()
        except MissingFileError:
            if split == "train":
                raise
    return own_files.labelled_task(settings, examples, {})


def _table_source(name: str, settings, split: str) -> TfdsTableSource:
    names = [field.name for field in dataclasses.fields(LabelledTableSettings)]
    columns = LabelledTableSettings(**{n: getattr(settings, n) for n in names})
    folder, download = settings.tfds_data_dir or None, settings.download
    return TfdsTableSource(name, split, columns, {}, folder, download)


def _found(
    readers: Mapping[str, Callable[[], Any]], asked: Sequence[str] | None
) -> dict[str, Any]:
    """Calls the readers of splits; leaves out what is missing, unless asked for."""
    found = {}
    for split, read_it in readers.items():
        try:
            found[split] = read_it()
        except MissingFileError:
            if split == "train" or asked is not None:
                raise
    return found


def _with_policy(source, split: str, settings):
    policy = "stop" if split.startswith("test") else settings.on_bad_input
    return dataclasses.replace(source, on_bad_input=policy)
