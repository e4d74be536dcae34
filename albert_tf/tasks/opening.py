"""Opens the data of tasks: official files, prepared sets, files of the user's own."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.heads import CHOICES as CHOICES_HEAD
from albert_tf.heads import HEADS, LABELS, TAGS
from albert_tf.settings import setting
from albert_tf.storage import files
from albert_tf.tables.class_ids import find_names, renamed
from albert_tf.tables.column_settings import ReadingSettings
from albert_tf.tables.columns import file_format, usual_name
from albert_tf.tables.reader import read_columns
from albert_tf.tables.tfds_source import PREFIX, is_tfds, read_tfds
from albert_tf.tasks import multiple_choice, registry, tagging, text_classification
from albert_tf.tasks.choice_files import ChoiceTableSettings, read_choice_table
from albert_tf.tasks.tagging_files import (
    TaggedExamples,
    TaggedTableSettings,
    read_tagged,
    with_iob2,
)
from albert_tf.tasks.task import REGRESSION, FileSource, Task
from albert_tf.tasks.text_tables import (
    LabelledTableSettings,
    Portions,
    TableSource,
    WholeTable,
)

TABLE = "table"
TEXTS, TOKENS, CHOICES = KINDS = ("texts", "tokens", "choices")
_KIND_OF = {LABELS: TEXTS, TAGS: TOKENS, CHOICES_HEAD: CHOICES}
_GIVEN = ("train", "dev", "test")
# Endings of files with a word and its tag per line.
_COLUMNS_OF_WORDS = (".conll", ".conll03", ".bio", ".iob", ".iob2", ".ner")


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
    if settings.task != TABLE:
        task = registry.find_task(settings.task)
        _refuse_columns(settings)

        def read(split: str) -> Any:
            return read_split(task, settings, split, given.get(split, ""))

        return task, {s: read(s) for s in given} or _found(task.splits, read)
    if is_tfds(settings.data_dir):
        examples = _found(_GIVEN, lambda split: _read_set(None, settings, split))
        return _labelled_task(settings, TEXTS, examples, {})
    require(
        not settings.data_dir,
        "data_dir: only with a task that has official files; a table is given as "
        "train_file, dev_file and test_file",
    )
    return _own_task(settings, given)


def _own_task(
    settings: DataSettings, paths: Mapping[str, str]
) -> tuple[Task, dict[str, Any]]:
    """Returns the task of the user's own files, and their examples.

    Args:
        settings: `DataSettings`, as for `open_task`.
        paths: dict. Paths by the name of the split; "train" is one of them.
    """
    labels, path = settings.labels, paths["train"]
    require(
        not labels or len(set(labels)) == len(labels) > 1,
        f"labels: expected at least 2 different names, received {', '.join(labels)}",
    )
    kind = settings.table_kind or _find_kind(settings, path)
    if kind != TEXTS and not settings.table_kind:
        logging.info("%s: its rows are %s", path, kind)
    written = {label: str(i) for i, label in enumerate(labels) if kind == CHOICES}
    examples = {
        split: _read(kind, settings, path, split, written)
        for split, path in paths.items()
    }
    if kind != CHOICES:
        return _labelled_task(settings, kind, examples, paths)
    task = multiple_choice.choice_task(TABLE)
    about = {"written": written, "table": _given(settings)}
    return dataclasses.replace(task, **about), examples


def _labelled_task(
    settings: DataSettings,
    kind: str,
    examples: Mapping[str, Any],
    paths: Mapping[str, str],
) -> tuple[Task, dict[str, Any]]:
    """Returns the task of examples with labels or tags, and them with names for ids.

    Args:
        settings: `DataSettings`, as for `open_task`.
        kind: str. `TEXTS` or `TOKENS`.
        examples: dict. Examples by the name of the split; "train" is one of them.
        paths: dict. Their files by the name of the split, if they are from files.
    """
    written: dict[str, str] = {}
    if settings.problem_type != REGRESSION:
        train, path = examples["train"], paths.get("train", "")
        _, written = _named(settings, train, path, {}, settings.labels)
        examples = {
            split: _named(settings, part, paths.get(split, ""), written)[0]
            for split, part in examples.items()
        }
    train = examples["train"]
    labels, many = settings.labels or tuple(written.values()), settings.many_labels
    if kind == TOKENS:
        # Names of another scheme have become IOB2, which the data define.
        if written and not {tag for row in train.labels for tag in row} <= {*labels}:
            labels = ()
        others = [part for split, part in examples.items() if split != "train"]
        task = tagging.tagging_task(TABLE, labels)
        task = tagging.with_labels(task, train, others, many)
    else:
        task = text_classification.table_task(labels)
        policy = (settings.problem_type, settings.on_bad_input)
        task = text_classification.with_labels(task, train, many, *policy)
    task = dataclasses.replace(task, written=written, table=_given(settings))
    return task, dict(examples)


def _named(
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
        else:
            require(path, f"task {task.name}: a file is required, none was given")
            kind = _KIND_OF.get(HEADS[task.head].answers)
            rule = f"task: a model with the head {task.head} is for squad1 or squad2, "
            require(kind, f"{rule}not for a table")
            found = _read(kind, settings, path, split, task.written)
        if not task.labels:
            return found
        return _named(settings, found, path, task.written)[0]
    _refuse_columns(settings)
    wanted = split
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
    source = _with_policy(task.splits[split], wanted, settings)
    if not path:
        return source.read(settings.data_dir)
    found = source.read_file(path)
    if HEADS[task.head].answers != TAGS:
        return found
    return _named(settings, found, path, {})[0]  # tags may be class ids


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
    policy = task.with_options(on_bad_input=settings.on_bad_input)
    examples = policy.to_evaluate(examples)
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


def _refuse_columns(settings: OwnFileSettings) -> None:
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


def _find_kind(settings: DataSettings, path: str) -> str:
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
    kind: str, settings: DataSettings, path: str, split: str, written: Mapping[str, str]
) -> Any:
    """Returns the examples in a file of one's own."""
    labelled = split != "test"
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
