"""The user's own files: texts with labels, words with tags, contexts with choices."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import UsageError
from albert_tf.settings import setting
from albert_tf.tasks.choices import multiple_choice
from albert_tf.tasks.choices.choice_files import ChoiceTableSettings, read_choice_table
from albert_tf.tasks.definitions.task import Task
from albert_tf.tasks.files import cells
from albert_tf.tasks.files.columns import read_columns
from albert_tf.tasks.tags import tagging
from albert_tf.tasks.tags.tagging_files import TaggedTableSettings, read_tagged
from albert_tf.tasks.texts import text_classification
from albert_tf.tasks.texts.table_stream import TableStream
from albert_tf.tasks.texts.tables import LabelledTableSettings, TableSettings

TEXTS, TOKENS, CHOICES = KINDS = ("texts", "tokens", "choices")
# Endings of files with a word and its tag per line.
_COLUMNS_OF_WORDS = (".conll", ".conll03", ".bio", ".iob", ".iob2", ".ner")
_HEADS = {
    "text_classifier": TEXTS,
    "token_classifier": TOKENS,
    "multiple_choice": CHOICES,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFileSettings(LabelledTableSettings, ChoiceTableSettings, TaggedTableSettings):
    """Where things are in files of one's own, whatever kind they are."""

    table_kind: str = setting(
        "What the rows of your files are: texts with labels, tokens with tags, or "
        "choices after a context. Default: by the columns of the file.",
        "",
        choices=("", *KINDS),
    )
    id_column: str = setting(
        "Name or number of a column that names the rows, for files of predictions. "
        "Default: rows are numbered from 0.",
        "",
    )
    label_column: str = setting(
        "Name or number of the label's column: the class, the score, or the number (or "
        "letter) of the right choice.",
        "label",
    )


def open_table(
    settings: OwnFileSettings, paths: Mapping[str, str]
) -> tuple[Task, dict[str, Any]]:
    """Returns the task of the user's own files, and their examples.

    Args:
        settings: `OwnFileSettings` with `labels`, `many_labels` and `on_bad_input`.
        paths: dict. Paths by the name of the split; "train" is one of them.

    Raises:
        UsageError: If a setting is invalid.
        DataError: If a file cannot be read or is malformed.
    """
    _check_labels(settings.labels)
    kind = settings.table_kind or find_kind(settings, paths["train"])
    if kind != TEXTS and not settings.table_kind:
        logging.info("%s: its rows are %s", paths["train"], kind)
    examples = {
        split: _read(kind, settings, path, split != "test")
        for split, path in paths.items()
    }
    train = examples["train"]
    if kind == CHOICES:
        return multiple_choice.choice_task("table"), examples
    if kind == TOKENS:
        task = tagging.tagging_task("table", settings.labels)
        others = [part for split, part in examples.items() if split != "train"]
        return tagging.with_labels(task, train, others, settings.many_labels), examples
    task = text_classification.table_task(settings.labels)
    task = text_classification.with_labels(
        task, train, settings.many_labels, settings.problem_type, settings.on_bad_input
    )
    return task, examples


def read_table(task: Task, settings: OwnFileSettings, path: str, labelled: bool) -> Any:
    """Returns the examples of one file for a task.

    Args:
        task: `Task`. Its head decides what the rows are.
        settings: `OwnFileSettings` with `on_bad_input`.
        path: str. The file.
        labelled: bool. Whether the labels are needed.
    """
    if not path:
        raise UsageError(f"task {task.name}: a file is required, none was given")
    if task.head not in _HEADS:
        raise UsageError(
            f"task: a model with the head {task.head} is for squad1 or squad2, not for "
            "a table"
        )
    return _read(_HEADS[task.head], settings, path, labelled)


def stream_texts(settings: OwnFileSettings, path: str) -> TableStream:
    """Returns a file of texts without labels, to be read in portions.

    Args:
        settings: `OwnFileSettings`.
        path: str. The file.
    """
    return _part(TableSettings, settings).stream(path)


def refuse_columns(settings: OwnFileSettings) -> None:
    """Raises a UsageError if columns are given for a task with official files."""
    for field in dataclasses.fields(OwnFileSettings):
        value = getattr(settings, field.name)
        if value != field.default:
            raise UsageError(
                f"{field.name}: only for files of your own (task=table); the files of "
                f"this task have a form of their own, received {value!r}"
            )
    if getattr(settings, "labels", ()):
        raise UsageError(
            "labels: only for files of your own (task=table), received "
            f"{', '.join(settings.labels)}"
        )


def find_kind(settings: OwnFileSettings, path: str) -> str:
    """Returns what the rows of a file are, by its name and columns."""
    if path.lower().removesuffix(".gz").endswith(_COLUMNS_OF_WORDS):
        return TOKENS
    has_names = settings.header or cells.file_format(path) in ("json", "parquet")
    if not has_names:
        return CHOICES if settings.choice_columns else TEXTS
    layout = {**settings.layout, "header": True}
    skip = {"short_rows": "skip", "on_bad_input": "skip"}
    names = set(read_columns(path, [], **layout, **skip).names)
    if settings.tokens_column in names and settings.tags_column in names:
        return TOKENS
    has_context = settings.context_column in names
    if settings.choice_columns or (has_context and settings.text_column not in names):
        return CHOICES
    return TEXTS


def _check_labels(labels: Sequence[str]) -> None:
    if labels and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise UsageError(
            f"labels: expected at least 2 different names, received {', '.join(labels)}"
        )


def _read(kind: str, settings: OwnFileSettings, path: str, labelled: bool) -> Any:
    policy = settings.on_bad_input if labelled else "stop"
    if kind == TOKENS:
        columns = _part(TaggedTableSettings, settings)
        return read_tagged(path, columns, labelled, policy)
    if kind == CHOICES:
        columns = _part(ChoiceTableSettings, settings)
        return read_choice_table(path, columns, labelled, policy)
    columns = _part(LabelledTableSettings if labelled else TableSettings, settings)
    read = functools.partial(columns.read_table, path)
    return read(on_bad_input=policy)


def _part(kind: type, settings: OwnFileSettings) -> Any:
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{name: getattr(settings, name) for name in names})
