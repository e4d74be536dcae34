"""The user's own files: texts with labels, words with tags, contexts with choices."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf import heads
from albert_tf.errors import UsageError, require
from albert_tf.settings import setting
from albert_tf.storage import files
from albert_tf.tables.class_ids import find_names, renamed
from albert_tf.tables.columns import file_format, usual_name
from albert_tf.tables.reader import read_columns
from albert_tf.tables.settings import ReadingSettings
from albert_tf.tasks import multiple_choice, tagging, text_classification
from albert_tf.tasks.choice_files import ChoiceTableSettings, read_choice_table
from albert_tf.tasks.tagging_files import (
    TaggedExamples,
    TaggedTableSettings,
    read_tagged,
    with_iob2,
)
from albert_tf.tasks.task import REGRESSION, Task
from albert_tf.tasks.text_tables import LabelledTableSettings

TEXTS, TOKENS, CHOICES = KINDS = ("texts", "tokens", "choices")
# Endings of files with a word and its tag per line.
_COLUMNS_OF_WORDS = (".conll", ".conll03", ".bio", ".iob", ".iob2", ".ner")
_ROWS = {heads.LABELS: TEXTS, heads.TAGS: TOKENS, heads.CHOICES: CHOICES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFileSettings(LabelledTableSettings, ChoiceTableSettings, TaggedTableSettings):
    """Where things are in files of one's own, of any kind.

    Attributes:
        table_kind: What the rows of your files are: texts with labels, tokens with
            tags, or choices after a context. Default: by the columns of the file.
    """

    table_kind: str = setting("", choices=("", *KINDS))


_FIELDS = dataclasses.fields(OwnFileSettings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(ReadingSettings, OwnFileSettings):
    """The data of a task: official files, a prepared set, or files of one's own.

    Attributes:
        task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, squad1, squad2,
            race, swag, codah, conll2003, wnut17, or table for files of your own.
            Default: the task of the model.
        data_dir: Folder with the official files of the task, or the name of a
            TensorFlow Datasets set, such as tfds:glue/mnli.
    """

    task: str = ""
    data_dir: str = setting("", identity="data")


def open_table(
    settings: DataSettings, paths: Mapping[str, str]
) -> tuple[Task, dict[str, Any]]:
    """Returns the task of the user's own files, and their examples.

    Args:
        settings: `DataSettings` with `labels` and `many_labels`.
        paths: dict. Paths by the name of the split; "train" is one of them.

    Raises:
        UsageError: If a setting is invalid.
        DataError: If a file cannot be read or is malformed.
    """
    labels = settings.labels
    require(
        not labels or len(set(labels)) == len(labels) > 1,
        f"labels: expected at least 2 different names, received {', '.join(labels)}",
    )
    kind = settings.table_kind or find_kind(settings, paths["train"])
    if kind != TEXTS and not settings.table_kind:
        logging.info("%s: its rows are %s", paths["train"], kind)
    choices = labels if kind == CHOICES else ()
    written = {label: str(i) for i, label in enumerate(choices)}
    examples = {
        split: _read(kind, settings, path, split != "test", written)
        for split, path in paths.items()
    }
    if kind == CHOICES:
        task = multiple_choice.choice_task("table")
        about = {"written": written, "table": _given(settings)}
        return dataclasses.replace(task, **about), examples
    return labelled_task(settings, examples, paths, kind)


def labelled_task(
    settings: DataSettings,
    examples: Mapping[str, Any],
    paths: Mapping[str, str],
    kind: str = TEXTS,
) -> tuple[Task, dict[str, Any]]:
    """Returns the task of examples with labels or tags, and them with names for ids.

    Args:
        settings: `DataSettings` with `labels` and `many_labels`.
        examples: dict. Examples by the name of the split; "train" is one of them.
        paths: dict. Their files by the name of the split, if they are from files.
        kind: str. `TEXTS` or `TOKENS`.
    """
    written: dict[str, str] = {}
    if settings.problem_type != REGRESSION:
        train, path = examples["train"], paths.get("train", "")
        _, written = named(settings, train, path, {}, settings.labels)
        examples = {
            split: named(settings, part, paths.get(split, ""), written)[0]
            for split, part in examples.items()
        }
    train = examples["train"]
    labels, many = settings.labels or tuple(written.values()), settings.many_labels
    if kind == TOKENS:
        # Names of another scheme have become IOB2, which the data define.
        if written and not {tag for row in train.labels for tag in row} <= {*labels}:
            labels = ()
        others = [part for split, part in examples.items() if split != "train"]
        task = tagging.tagging_task("table", labels)
        task = tagging.with_labels(task, train, others, many)
    else:
        task = text_classification.table_task(labels)
        policy = (settings.problem_type, settings.on_bad_input)
        task = text_classification.with_labels(task, train, many, *policy)
    task = dataclasses.replace(task, written=written, table=_given(settings))
    return task, dict(examples)


def named(
    settings: DataSettings,
    examples: Any,
    path: str,
    known: Mapping[str, str],
    given: Sequence[str] = (),
) -> tuple[Any, dict[str, str]]:
    """Returns examples with names for class ids, and the names; see `find_names`."""
    is_tagged = isinstance(examples, TaggedExamples)
    column = settings.tags_column if is_tagged else settings.label_column
    names = find_names(path, column, examples.labels or (), given, known)
    if names:
        labels = renamed(examples.labels, names)
        examples = dataclasses.replace(examples, labels=labels)
        examples = with_iob2(examples) if is_tagged else examples
    return examples, names


def read_table(task: Task, settings: DataSettings, path: str, labelled: bool) -> Any:
    """Returns the examples of one file for a task.

    Args:
        task: `Task`. Its head decides what the rows are.
        settings: `DataSettings`.
        path: str. The file.
        labelled: bool. Whether the labels are needed.
    """
    require(path, f"task {task.name}: a file is required, none was given")
    kind = _ROWS.get(heads.HEADS[task.head].answers)
    rule = f"task: a model with the head {task.head} is for squad1 or squad2, not for"
    require(kind, f"{rule} a table")
    examples = _read(kind, settings, path, labelled, task.written)
    if not task.labels:
        return examples
    return named(settings, examples, path, task.written)[0]


def refuse_columns(settings: OwnFileSettings) -> None:
    """Raises a UsageError if columns are given for a task with official files."""
    given = _given(settings)
    if labels := getattr(settings, "labels", ()):
        given["labels"] = ", ".join(labels)
    for name, value in given.items():
        raise UsageError(
            f"{name}: only for files of your own (task=table); the files of this task "
            f"have a form of their own, received {value!r}"
        )


def remembered(task: Task, path: str) -> dict[str, Any]:
    """Returns how the table was laid out that a model was trained on, for another one.

    Args:
        task: `Task`. Task of the model.
        path: str. The other table. If it names its columns and that one did not, the
            numbers of columns mean nothing for it, and nothing is returned.
    """
    if not task.table.get("header", True) and _has_names(path):
        return {}
    if task.table:
        values = ", ".join(f"{name}={value}" for name, value in task.table.items())
        logging.info("%s: as in training, unless given: %s", path, values)
    return dict(task.table)


def find_kind(settings: DataSettings, path: str) -> str:
    """Returns what the rows of a file are, by its name and columns."""
    if path.lower().removesuffix(".gz").endswith(_COLUMNS_OF_WORDS):
        return TOKENS
    if files.is_folder(path):
        return TEXTS
    if not settings.header and not _has_names(path):
        return CHOICES if settings.choice_columns else TEXTS
    layout = {**settings.layout, "header": True}
    skip = {"short_rows": "skip", "on_bad_input": "skip"}
    names = set(read_columns(path, [], **layout, **skip).names)
    tags = usual_name(settings.tags_column, names) in names
    if settings.tokens_column in names and (tags or settings.text_column not in names):
        return TOKENS
    has_context = settings.context_column in names
    if settings.choice_columns or (has_context and settings.text_column not in names):
        return CHOICES
    return TEXTS


def _read(
    kind: str,
    settings: DataSettings,
    path: str,
    labelled: bool,
    written: Mapping[str, str],
) -> Any:
    policy = settings.on_bad_input if labelled else "stop"
    if kind == TOKENS:
        return read_tagged(path, settings, labelled, policy)
    if kind == CHOICES:
        return read_choice_table(path, settings, labelled, policy, written)
    return settings.read_table(path, labelled=labelled, on_bad_input=policy)


def _has_names(path: str) -> bool:
    """Returns whether a file names its columns, with or without a header."""
    return file_format(path) in ("json", "parquet") or files.is_folder(path)


def _given(settings: OwnFileSettings) -> dict[str, Any]:
    """Returns the settings of the table that are not the default."""
    values = {f: getattr(settings, f.name) for f in _FIELDS}
    return {f.name: value for f, value in values.items() if value != f.default}
