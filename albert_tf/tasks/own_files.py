"""Files of the user's own: their settings, the kind of their rows, their labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError, require
from albert_tf.heads import CHOICES as CHOICES_HEAD
from albert_tf.heads import LABELS, TAGS
from albert_tf.heads import VECTORS as VECTORS_HEAD
from albert_tf.settings import setting
from albert_tf.storage import files
from albert_tf.tables.class_ids import are_vectors, find_names, of_vectors, renamed
from albert_tf.tables.columns import file_format, usual_name
from albert_tf.tables.reader import read_columns
from albert_tf.tasks import tagging, text_classification
from albert_tf.tasks.choice_files import ChoiceTableSettings, has_choices
from albert_tf.tasks.embedding_files import TupleTableSettings, has_positives
from albert_tf.tasks.tagging_files import TaggedExamples, TaggedTableSettings, with_iob2
from albert_tf.tasks.task import REGRESSION, SINGLE_LABEL, Task
from albert_tf.tasks.text_tables import AUTO, label_key

TABLE = "table"
TEXTS, TOKENS, CHOICES, VECTORS = KINDS = ("texts", "tokens", "choices", "vectors")
KIND_OF = {LABELS: TEXTS, TAGS: TOKENS, CHOICES_HEAD: CHOICES, VECTORS_HEAD: VECTORS}
# Extensions of files with a word and its tag per line.
_COLUMNS_OF_WORDS = (".conll", ".conll03", ".bio", ".iob", ".iob2", ".ner")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFileSettings(TupleTableSettings, ChoiceTableSettings, TaggedTableSettings):
    """The columns of your own files, of any kind.

    Attributes:
        table_kind: What the rows of your files are: texts with labels, tokens with
            tags, choices after a context, or texts to train vectors on (pairs, pairs
            with scores, texts alone). Default: by the columns of the file.
    """

    table_kind: str = setting("", choices=("", *KINDS))


_FIELDS = dataclasses.fields(OwnFileSettings)


def find_kind(settings: OwnFileSettings, path: str) -> str:
    """Returns the kind of a file's rows, by its name and columns."""
    if path.lower().removesuffix(".gz").endswith(_COLUMNS_OF_WORDS):
        return TOKENS
    if files.is_folder(path):
        return TEXTS
    if not settings.header and not has_names(path):
        return CHOICES if settings.choice_columns else TEXTS
    layout = {**settings.layout, "header": True}
    skip = {"short_rows": "skip", "on_bad_input": "skip"}
    names = set(read_columns(path, [], **layout, **skip).names)
    if has_positives(settings, names):
        return VECTORS
    tags = usual_name(settings.tags_column, names) in names
    if settings.tokens_column in names and (tags or settings.text_column not in names):
        return TOKENS
    if settings.choice_columns:
        return CHOICES
    # Columns that are named for texts are not read as choices.
    named = settings.text_column != "text" or settings.text_pair_column
    choices = set() if named else names - {*settings.label_columns}
    if settings.text_column not in names or has_choices(choices):
        context = settings.context_column
        if context in names or context.removeprefix("-").isdecimal():
            return CHOICES
        need = (
            f"{path}: no column that precedes the choices; expected {context!r} among "
            f"{', '.join(sorted(names)):.200} "
            "(--context_column names it; --table_kind=texts reads no choices)"
        )
        require(not has_choices(names), need, error=DataError)
    return TEXTS


def has_names(path: str) -> bool:
    """Returns whether a file names its columns, with or without a header."""
    return file_format(path) in ("json", "parquet") or files.is_folder(path)


def changed(settings: OwnFileSettings) -> dict[str, Any]:
    """Returns the table settings that differ from their defaults."""
    values = {f: getattr(settings, f.name) for f in _FIELDS}
    return {f.name: value for f, value in values.items() if value != f.default}


def labelled_task(
    settings: OwnFileSettings,
    examples: Mapping[str, Any],
    paths: Mapping[str, str],
    like: Task | None = None,
) -> tuple[Task, dict[str, Any], dict[str, str]]:
    """Returns the task of labelled examples, the examples, and the names of class ids.

    Training examples without labels take the ones of the task `like`.
    """
    written: dict[str, str] = {}
    names = settings.labels or (like.labels if like else ())
    if settings.problem_type != REGRESSION:
        train, path = examples["train"], paths.get("train", "")
        _, written = named(settings, train, path, {}, names)
        examples = {
            split: named(
                settings, part, paths.get(split, ""), written, names if like else ()
            )[0]
            for split, part in examples.items()
        }
    train = examples["train"]
    labels = names or settings.label_columns or tuple(written.values())
    many = settings.many_labels
    if isinstance(train, TaggedExamples):
        # Names of another scheme have become IOB2, which the data define.
        if written and not {tag for row in train.labels for tag in row} <= {*labels}:
            labels = ()
        others = [part for split, part in examples.items() if split != "train"]
        task = tagging.tagging_task(TABLE, labels)
        task = tagging.with_labels(task, train, others, many)
    elif train.labels is None:
        kind = like.problem_type or SINGLE_LABEL
        kind = kind if settings.problem_type == AUTO else settings.problem_type
        task = text_classification.table_task(labels, kind)
    else:
        task = text_classification.table_task(labels)
        policy = (settings.problem_type, settings.on_bad_input)
        task = text_classification.with_labels(task, train, many, *policy)
    return task, dict(examples), written


def named(
    settings: OwnFileSettings,
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
