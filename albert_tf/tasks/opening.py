"""Opens the data of tasks: official files, prepared sets, and the user's own files."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.heads import HEADS, TAGS
from albert_tf.settings import setting
from albert_tf.storage import files, streams
from albert_tf.tables.class_ids import are_ids
from albert_tf.tables.column_settings import ReadingSettings
from albert_tf.tables.columns import BLANK, REFUSE
from albert_tf.tables.tfds_source import PREFIX, is_tfds, prepared_folder, read_tfds
from albert_tf.tasks import multiple_choice, registry
from albert_tf.tasks.choice_files import ChoiceSource
from albert_tf.tasks.embedding import EMBEDDER, as_embedding, embedding_task
from albert_tf.tasks.embedding_files import TupleSource
from albert_tf.tasks.own_files import (
    CHOICES,
    KIND_OF,
    TABLE,
    TEXTS,
    TOKENS,
    VECTORS,
    OwnFileSettings,
    changed,
    find_kind,
    has_names,
    labelled_task,
    named,
)
from albert_tf.tasks.tagging_files import TaggedSource
from albert_tf.tasks.task import FileSource, Portions, Task
from albert_tf.tasks.text_tables import TableSource, label_key

_GIVEN = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(ReadingSettings, OwnFileSettings):
    """The data of a task: official files, a prepared set, or files of your own.

    Attributes:
        task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, squad1, squad2,
            race, swag, codah, conll2003, wnut17, beir, or table for files of your own.
            Default: the task of the model.
        data_dir: Folder with the official files of the task, or the name of a
            TensorFlow Datasets set, such as tfds:glue/mnli.
    """

    task: str = setting("", common=True)
    data_dir: str = setting("", common=True, identity="data")


def open_task(
    settings: DataSettings, like: Task | None = None
) -> tuple[Task, dict[str, Any]]:
    """Returns a task with its labels, and the examples by split.

    The settings also have `train_file`, `dev_file` and `test_file`, and for a table
    `labels` and `many_labels`. Labels may be those of `like`. A split whose file does
    not exist is left out, except for "train".
    """
    given = {s: getattr(settings, f"{s}_file", "") for s in _GIVEN}
    given = {split: path for split, path in given.items() if path}
    for split, path in given.items():
        require(
            not is_tfds(path),
            f"{split}_file: expected a file; --data_dir={path} reads a set of "
            "TensorFlow Datasets",
        )
    if settings.task != TABLE:
        task = registry.find_task(settings.task)
        if getattr(settings, "answer_head", "") == EMBEDDER:
            task = as_embedding(task)

        def read(split: str) -> Any:
            return read_split(task, settings, split, given.get(split, ""))

        return task, {s: read(s) for s in given} or _found(task.splits, read)
    is_set, labels = is_tfds(settings.data_dir), settings.labels
    require(
        is_set or not settings.data_dir,
        "data_dir: only with a task that has official files; a table is given as "
        "train_file, dev_file and test_file",
    )
    need = f"labels: expected at least 2 different names, received {', '.join(labels)}"
    require(not labels or len({*map(label_key, labels)}) == len(labels) > 1, need)
    given, kind = {} if is_set else given, settings.table_kind or TEXTS
    if not is_set and not settings.table_kind:
        kind = find_kind(settings, given["train"])
        if kind != TEXTS:
            logging.info("%s: its rows are %s", given["train"], kind)
    written = {label: str(i) for i, label in enumerate(labels) if kind == CHOICES}
    several = settings.label_columns
    rule = "label_columns: name the labels of texts themselves, and --labels cannot"
    require(not several or (kind == TEXTS and not labels), rule, *several)
    for name in ("label_columns", "choice_columns"):
        columns, rule = getattr(settings, name), f"{name}: expected different names"
        require(len({*columns}) == len(columns), rule, *columns)

    def read(split: str) -> Any:
        source = _own_source(kind, settings, split, written)
        if like and split == "train":
            source = dataclasses.replace(source, labelled=False)
        return _read(source, settings, split, given.get(split, ""))

    examples = {s: read(s) for s in given} or _found(_GIVEN, read)
    task = multiple_choice.choice_task(TABLE)
    if kind == VECTORS:
        task = embedding_task(TABLE, form=examples.get("dev", examples["train"]).form)
    elif kind != CHOICES:
        task, examples, written = labelled_task(settings, examples, given, like)
    task = dataclasses.replace(task, written=written, table=changed(settings))
    return task, examples


def read_split(task: Task, settings: DataSettings, split: str, path: str = "") -> Any:
    """Returns the examples of one split, to evaluate a model or to predict.

    "test" falls back to "dev" for tasks without a public test set. Raises `UsageError`
    if the settings do not fit the task, or it has no such split, and `DataError` if the
    data is missing or malformed.
    """
    if task.name == TABLE:
        is_set = is_tfds(settings.data_dir)
        kind = TEXTS if is_set else KIND_OF.get(HEADS[task.head].answers)
        path = "" if is_set else path
        require(is_set or path, f"task {task.name}: a file is required, none was given")
        message = f"task: a model with the head {task.head} is for squad1 or squad2, "
        require(kind, f"{message}not for a table")
        source = _own_source(kind, settings, split, task.written)
        found = _read(source, settings, split, path)
        return named(settings, found, path, task.written)[0] if task.labels else found
    _refuse_columns(settings)
    name = _split_of(task, settings, split, path)
    policy = _policy(settings.on_bad_input, split)
    source = dataclasses.replace(task.splits[name], on_bad_input=policy)
    found = _read(source, settings, name, path)
    if path and HEADS[task.head].answers == TAGS:
        found, _ = named(settings, found, path, {})  # tags may be class ids
    return found


def _split_of(task: Task, settings: DataSettings, split: str, path: str) -> str:
    """Returns the name of a task's split for a requested one; see `read_split`."""
    several = [name for name in task.splits if name.startswith(f"{split}_")]
    if split in task.splits:
        return split
    message = f"split: {task.name} has several, expected one of {', '.join(several)}"
    require(len(several) < 2 or path, f"{message}, received {split}")
    if several:
        return several[0]  # the matched part of MNLI stands for both
    require(
        split == "test" and "dev" in task.splits,
        f"split: {settings.data_dir or task.name} has no split {split!r} for the task "
        f"{task.name}; expected one of {', '.join(task.splits)}",
    )
    return "dev"


def _own_source(
    kind: str, settings: DataSettings, split: str, written: Mapping[str, str]
) -> FileSource:
    """Returns the source of a split of the user's own data."""
    policy, is_labelled = _policy(settings.on_bad_input, split), split != "test"
    about = {"columns": settings, "labelled": is_labelled, "on_bad_input": policy}
    message = f"group_column: only for texts with labels or scores, not for {kind}"
    require(kind == TEXTS or not settings.group_column, message, settings.group_column)
    if kind == TOKENS:
        return TaggedSource(**about)
    if kind == VECTORS:
        return TupleSource(columns=settings, on_bad_input=policy)
    if kind == CHOICES:
        return ChoiceSource(**about, written=written)
    return TableSource(**about)


def _policy(policy: str, split: str) -> str:
    """Returns the action at bad rows of a split; one to predict is never left out."""
    return REFUSE if split.startswith("test") and policy != BLANK else policy


def _read(source: FileSource, settings: DataSettings, split: str, path: str) -> Any:
    """Returns the examples in a file, a prepared set, or the data folder."""
    name = settings.data_dir
    if path or not is_tfds(name):
        return source.read_file(path) if path else source.read(name)
    require(
        source.from_rows,
        f"data_dir: this task is not read from TensorFlow Datasets ({PREFIX}...), "
        f"received {name}; give a folder with its files",
    )
    there = source.set_split(name, split)
    rows = read_tfds(name, there, settings.tfds_data_dir or None, settings.download)
    return source.from_rows(rows)


def check_prepared(settings: DataSettings) -> None:
    """Raises the error of reading a set that is neither prepared nor downloaded."""
    if not settings.download:
        prepared_folder(settings.data_dir, settings.tfds_data_dir or None, False)


def open_portions(
    task: Task, settings: DataSettings, split: str, path: str = ""
) -> Portions:
    """Returns the examples of a split, to be read in portions.

    Examples without labels in a file of the user's own are read portion by portion, and
    so are words in columns of any task. Everything else is read at once, by
    `read_split`: official files, a file of SQuAD, which is one JSON object, and tags
    that are class ids of unknown names, since only all of them show whether they count
    from 0 or from 1. No example can be left out: with `on_bad_input="skip"`, a row that
    cannot be used is empty, with an entry in `Examples.problems`.
    """
    policy = REFUSE if settings.on_bad_input == "stop" else BLANK
    settings = dataclasses.replace(settings, on_bad_input=policy)
    kind, is_table = KIND_OF.get(HEADS[task.head].answers), task.name == TABLE
    if is_table:
        own = _own_source(kind, settings, split, task.written)
    else:
        _refuse_columns(settings)
        name = _split_of(task, settings, split, path)
        own = dataclasses.replace(task.splits[name], on_bad_input=policy)
    # An article of RACE has several questions, and a file of SQuAD has no rows.
    is_file = path and split == "test" and not files.is_folder(path)
    has_rows = is_file and kind and hasattr(own, "columns")
    need = "on_bad_input: skip is for an --input_file with a row per answer; correct "
    require(policy == REFUSE or has_rows, f"{need}{path or settings.data_dir}")
    if not is_file or not (kind == TOKENS or is_table and kind):
        return Portions.of(read_split(task, settings, split, path))
    source = own.open(path)
    written = task.written if is_table else {}
    if kind == TOKENS and not written and streams.status(path).is_regular:
        tags = next(source.portions(1)).labels
        if tags is not None and are_ids(tags):
            return Portions.of(read_split(task, settings, split, path))

    def portions(size: int | None) -> Iterator[Any]:
        all_names = written
        for part in source.portions(size):
            if task.labels:
                part, names = named(settings, part, path, all_names)
                all_names = all_names or names
            yield part

    return Portions(portions, source.fraction).checked(path)


def read_labelled(
    task: Task, settings: DataSettings, split: str, path: str = ""
) -> Any:
    """Returns the examples of a split on which a model is evaluated; see `read_split`.

    Raises `DataError` if the examples have no labels.
    """
    examples = read_split(task, settings, split, path)
    policy = task.with_options(on_bad_input=settings.on_bad_input)
    examples = policy.to_evaluate(examples)
    message = f"{examples.path}: has no labels to compare with"
    require(examples.labels is not None, message, error=DataError)
    return examples


def _found(splits: Iterable[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Returns the examples of the splits that exist; "train" must exist."""
    examples = {}
    for split in splits:
        try:
            examples[split] = read(split)
        except MissingFileError as e:
            if split == "train":
                raise
            logging.info("no %s examples: %s", split, e)
    return examples


def remembered(task: Task, path: str) -> dict[str, Any]:
    """Returns the table settings that a model was trained with, for another table.

    If the table at `path` names its columns and the training table did not, column
    numbers are meaningless for it, and nothing is returned.
    """
    if not task.table.get("header", True) and has_names(path):
        return {}
    if task.table:
        values = ", ".join(f"{name}={value}" for name, value in task.table.items())
        logging.info("%s: as in training, unless given: %s", path, values)
    return dict(task.table)


def _refuse_columns(settings: OwnFileSettings) -> None:
    """Raises a `UsageError` if columns are given for a task with official files."""
    values = changed(settings)
    if labels := getattr(settings, "labels", ()):
        values["labels"] = ", ".join(labels)
    for name, value in values.items():
        raise UsageError(
            f"{name}: only for files of your own (task=table); the files of this task "
            f"have a form of their own, received {value!r}"
        )
