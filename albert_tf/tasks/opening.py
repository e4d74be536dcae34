"""Opens the data of tasks: official files, prepared sets, and the user's own files."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.heads import CHOICES as CHOICES_HEAD
from albert_tf.heads import HEADS, LABELS, TAGS
from albert_tf.settings import setting
from albert_tf.storage import files, streams
from albert_tf.tables.class_ids import (
    are_ids,
    are_vectors,
    find_names,
    of_vectors,
    renamed,
)
from albert_tf.tables.column_settings import ReadingSettings
from albert_tf.tables.columns import BLANK, REFUSE, file_format, usual_name
from albert_tf.tables.reader import read_columns
from albert_tf.tables.tfds_source import PREFIX, is_tfds, read_tfds
from albert_tf.tasks import multiple_choice, registry, tagging, text_classification
from albert_tf.tasks.choice_files import ChoiceSource, ChoiceTableSettings, has_choices
from albert_tf.tasks.tagging_files import (
    TaggedExamples,
    TaggedSource,
    TaggedTableSettings,
    with_iob2,
)
from albert_tf.tasks.task import REGRESSION, FileSource, Portions, Task
from albert_tf.tasks.text_tables import LabelledTableSettings, TableSource, label_key

TABLE = "table"
TEXTS, TOKENS, CHOICES = KINDS = ("texts", "tokens", "choices")
_KIND_OF = {LABELS: TEXTS, TAGS: TOKENS, CHOICES_HEAD: CHOICES}
_GIVEN = ("train", "dev", "test")
# Extensions of files with a word and its tag per line.
_COLUMNS_OF_WORDS = (".conll", ".conll03", ".bio", ".iob", ".iob2", ".ner")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFileSettings(LabelledTableSettings, ChoiceTableSettings, TaggedTableSettings):
    """The columns of your own files, of any kind.

    Attributes:
        table_kind: What the rows of your files are: texts with labels, tokens with
            tags, or choices after a context. Default: by the columns of the file.
    """

    table_kind: str = setting("", choices=("", *KINDS))


_FIELDS = dataclasses.fields(OwnFileSettings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(ReadingSettings, OwnFileSettings):
    """The data of a task: official files, a prepared set, or files of your own.

    Attributes:
        task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, squad1, squad2,
            race, swag, codah, conll2003, wnut17, or table for files of your own.
            Default: the task of the model.
        data_dir: Folder with the official files of the task, or the name of a
            TensorFlow Datasets set, such as tfds:glue/mnli.
    """

    task: str = setting("", common=True)
    data_dir: str = setting("", common=True, identity="data")


def open_task(settings: DataSettings) -> tuple[Task, dict[str, Any]]:
    """Returns a task and the examples of its splits.

    Args:
        settings: Settings that also have `train_file`, `dev_file` and `test_file`, and
            for a table `labels` and `many_labels`.

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

        def read(split: str) -> Any:
            return read_split(task, settings, split, given.get(split, ""))

        return task, {s: read(s) for s in given} or _found(task.splits, read)
    is_set, labels = is_tfds(settings.data_dir), settings.labels
    require(
        is_set or not settings.data_dir,
        "data_dir: only with a task that has official files; a table is given as "
        "train_file, dev_file and test_file",
    )
    require(
        not labels or len({*map(label_key, labels)}) == len(labels) > 1,
        f"labels: expected at least 2 different names, received {', '.join(labels)}",
    )
    given, kind = {} if is_set else given, settings.table_kind or TEXTS
    if not is_set and not settings.table_kind:
        kind = _find_kind(settings, given["train"])
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
        return _read(source, settings, split, given.get(split, ""))

    examples = {s: read(s) for s in given} or _found(_GIVEN, read)
    task = multiple_choice.choice_task(TABLE)
    if kind != CHOICES:
        task, examples, written = _labelled_task(settings, examples, given)
    task = dataclasses.replace(task, written=written, table=_given(settings))
    return task, examples


def _labelled_task(
    settings: DataSettings, examples: Mapping[str, Any], paths: Mapping[str, str]
) -> tuple[Task, dict[str, Any], dict[str, str]]:
    """Returns the task of examples with labels or tags.

    Args:
        examples: Examples by the name of the split, which must include "train".
        paths: Files of the examples by the name of the split, if they are from files.

    Returns:
        The task, the examples with names for class ids, and these names.
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
    labels = settings.labels or settings.label_columns or tuple(written.values())
    many = settings.many_labels
    if isinstance(train, TaggedExamples):
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
    return task, dict(examples), written


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
    if not is_tagged and are_vectors(examples.labels or ()):
        labels, names = of_vectors(path, column, examples.labels, given, known)
        return dataclasses.replace(examples, labels=labels), names
    labels = examples.labels
    if labels and not is_tagged:  # ids may be written as 1.0
        labels = [x if isinstance(x, tuple) else label_key(x) for x in labels]
    names = find_names(path, column, labels or (), given, known)
    if names:
        examples = dataclasses.replace(examples, labels=renamed(labels, names))
        examples = with_iob2(examples) if is_tagged else examples
    return examples, names


def read_split(task: Task, settings: DataSettings, split: str, path: str = "") -> Any:
    """Returns the examples of one split, to evaluate a model or to predict.

    Args:
        split: Name of the split. "test" falls back to "dev" for tasks without a public
            test set.

    Raises:
        UsageError: If the settings do not fit the task, or it has no such split.
        DataError: If the data is missing or malformed.
    """
    if task.name == TABLE:
        is_set = is_tfds(settings.data_dir)
        kind = TEXTS if is_set else _KIND_OF.get(HEADS[task.head].answers)
        path = "" if is_set else path
        require(is_set or path, f"task {task.name}: a file is required, none was given")
        message = f"task: a model with the head {task.head} is for squad1 or squad2, "
        require(kind, f"{message}not for a table")
        source = _own_source(kind, settings, split, task.written)
        found = _read(source, settings, split, path)
        return _named(settings, found, path, task.written)[0] if task.labels else found
    _refuse_columns(settings)
    name = _split_of(task, settings, split, path)
    policy = _policy(settings.on_bad_input, split)
    source = dataclasses.replace(task.splits[name], on_bad_input=policy)
    found = _read(source, settings, name, path)
    if path and HEADS[task.head].answers == TAGS:
        found, _ = _named(settings, found, path, {})  # tags may be class ids
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
    if kind == TOKENS:
        return TaggedSource(**about)
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
    kind, is_table = _KIND_OF.get(HEADS[task.head].answers), task.name == TABLE
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
                part, names = _named(settings, part, path, all_names)
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


def _refuse_columns(settings: OwnFileSettings) -> None:
    """Raises a `UsageError` if columns are given for a task with official files."""
    changed = _given(settings)
    if labels := getattr(settings, "labels", ()):
        changed["labels"] = ", ".join(labels)
    for name, value in changed.items():
        raise UsageError(
            f"{name}: only for files of your own (task=table); the files of this task "
            f"have a form of their own, received {value!r}"
        )


def remembered(task: Task, path: str) -> dict[str, Any]:
    """Returns the table settings that a model was trained with, for another table.

    If the table at `path` names its columns and the training table did not, column
    numbers are meaningless for it, and nothing is returned.
    """
    if not task.table.get("header", True) and _has_names(path):
        return {}
    if task.table:
        values = ", ".join(f"{name}={value}" for name, value in task.table.items())
        logging.info("%s: as in training, unless given: %s", path, values)
    return dict(task.table)


def _find_kind(settings: DataSettings, path: str) -> str:
    """Returns the kind of a file's rows, by its name and columns."""
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
    if settings.choice_columns:
        return CHOICES
    if settings.text_column not in names:
        context = settings.context_column
        if context in names or context.removeprefix("-").isdecimal():
            return CHOICES
        require(
            not has_choices(names),
            f"{path}: no column that precedes the choices; expected {context!r} among "
            f"{', '.join(sorted(names)):.200} "
            "(--context_column names it)",
            error=DataError,
        )
    return TEXTS


def _has_names(path: str) -> bool:
    """Returns whether a file names its columns, with or without a header."""
    return file_format(path) in ("json", "parquet") or files.is_folder(path)


def _given(settings: OwnFileSettings) -> dict[str, Any]:
    """Returns the table settings that differ from their defaults."""
    values = {f: getattr(settings, f.name) for f in _FIELDS}
    return {f.name: value for f, value in values.items() if value != f.default}
