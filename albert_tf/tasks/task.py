"""Defines a fine-tuning task: its data, its labels, its metrics and its recipe.

A task is one object. Its class represents a family of tasks (classification of texts,
extraction of answers, ...), which turns examples into rows, and outputs of a model into
answers; `registry` names the tasks. The trainer, `evaluate` and `predict` call the
methods of `Task` and do not depend on any family.

Legend: `N` examples, `R` rows, `U` training units, `P` places, `C` labels.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from absl import logging

from albert_tf.errors import MissingFileError, UsageError
from albert_tf.storage import files, streams
from albert_tf.tables.columns import warn_of_skipped
from albert_tf.text import inputs

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
# Highest relevance of a candidate: pytrec_eval counts the candidates of each up to it.
MOST_RELEVANT = 1_000_000
# Limits of a report: number of errors, and characters of each text.
MOST_ERRORS, LONGEST_TEXT = 50, 1000
# Bytes of a file of examples that is kept in memory.
_SMALL = 1 << 24
# Fields of where examples are from, for messages; files may be moved.
_PLACES = ("path", "lines", "unit", "where", "note", "skipped")


class Examples:
    """Base of dataclasses of examples, where each list has an item per example.

    Attributes:
        path: Origin of the examples, for messages.
        skipped: Number of examples left out, by reason.
        problems: For each example the reason why it could not be read and is empty, or
            an empty string; None if there are no such examples.
    """

    path: str
    ids: list[str]
    skipped: Mapping[str, int]
    problems: list[str] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int]) -> Self:
        """Returns the examples with these indices, in this order."""
        lists = {k: v for k, v in vars(self).items() if isinstance(v, list)}
        chosen = {key: [column[i] for i in rows] for key, column in lists.items()}
        return dataclasses.replace(self, **chosen)

    def kept(self, rows: Sequence[int], counts: Mapping[str, int]) -> Self:
        """Returns the examples with these indices, and logs how many were skipped."""
        warn_of_skipped(self.path, counts)
        skipped = {**self.skipped, **counts}
        return dataclasses.replace(self.select(rows), skipped=skipped)


@dataclasses.dataclass(frozen=True)
class Portions:
    """Examples that need not all be in memory at the same time.

    Attributes:
        portions: Takes a number and yields that many examples at a time, fewer at the
            end; with None, all at once.
        fraction: Returns the fraction that has been read, from 0 to 1.
    """

    portions: Callable[[int | None], Iterator[Any]]
    fraction: Callable[[], float]

    @classmethod
    def of(cls, examples: Examples) -> Self:
        """Returns examples that are in memory."""
        done = 0

        def portions(size: int) -> Iterator[Any]:
            nonlocal done
            for first in range(0, len(examples), size):
                done = min(first + size, len(examples))
                yield examples.select(range(first, done))

        return cls(portions, lambda: done / len(examples))

    def whole(self) -> Any:
        """Returns all examples."""
        (examples,) = self.portions(None)
        return examples

    def checked(self, path: str | os.PathLike) -> Self:
        """Returns these portions after reading the file, unless it is a pipe.

        A problem is thus found before anything is computed. Only the start of a large
        file, or of one in a bucket, is read.
        """
        status = streams.status(path)
        if status.is_regular and status.size <= _SMALL and not files.is_remote(path):
            return self.of(self.whole())
        if status.is_regular:
            next(self.portions(1))
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource:
    """Source of the examples of one split: a file in the data folder.

    Base of the sources of all families. A subclass defines `open`, or `read_file`, to
    read a file. If TensorFlow Datasets has the set, too, a method `from_rows` converts
    its rows, a `tfds_source.TfdsRows`.

    Attributes:
        names: Names that the file may have.
        folders: Subfolders of the data folder that may hold it.
        hint: End of the message if there is no such file.
        on_bad_input: "stop" raises an error at an unusable example, "skip" leaves it
            out and counts it.
    """

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ("",)
    hint: str = ""
    labelled: bool = True
    on_bad_input: str = "stop"
    from_rows: ClassVar[Callable | None] = None

    def read(self, folder: str) -> Any:
        """Returns the examples of the split, from the data folder.

        Raises `UsageError` if no folder is given, and `DataError` if the data is
        missing or malformed.
        """
        if not folder:
            message = f"data_dir must be the folder of {self.names[0]}"
            raise UsageError(f"{message}, received none")
        for inner in self.folders:
            for name in self.names:
                path = files.join(folder, *filter(None, [inner]), name)
                if files.exists(path):
                    return self.read_file(path)
        names = " or ".join(self.names)
        raise MissingFileError(f"{folder}: no file {names}{self.hint}")

    def open(self, path: str) -> Portions:
        """Returns the examples in any file of this form, to be read in portions."""
        raise NotImplementedError

    def read_file(self, path: str) -> Any:
        """Returns the examples in any file of this form."""
        return self.open(path).whole()

    def set_split(self, name: str, split: str) -> str:
        """Returns the name of a split in a set of TensorFlow Datasets."""
        return split.replace("dev", "validation")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options for turning examples into rows, and outputs into answers.

    All but `on_bad_input` is saved with the model.

    Attributes:
        doc_stride: Question answering: tokens between the starts of two windows.
        max_query_length: Question answering: tokens kept of a question.
        max_qa_length: RACE: tokens kept of a question with one of its choices.
        n_best_size: Question answering: number of answers to write.
        max_answer_length: Question answering: tokens of the longest answer.
        null_threshold: Question answering: a question whose null score is above it is
            not answered.
        on_bad_input: "stop" raises an error at an unusable example, "skip" leaves it
            out and counts it. Examples to predict are never left out.
    """

    max_seq_length: int = 512
    doc_stride: int = 128
    max_query_length: int = 64
    max_qa_length: int = 128
    n_best_size: int = 20
    max_answer_length: int = 30
    null_threshold: float = 0.0
    on_bad_input: str = "stop"


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedExamples:
    """Examples as rows of tokens with their targets.

    Attributes:
        rows: `R` rows.
        unit_splits: int64 `[U + 1]`. Unit `u`, which is never split between two
            batches, consists of the rows from `unit_splits[u]` to before `unit_splits[u
            + 1]`: one row, or the choices of a question.
        targets: By key of `features`, an array whose first axis is `U`, or `P` for the
            tags of words. Empty if the examples have no labels.
        truncated: bool `[N]`. Whether each example lost text.
        place_splits: int64 `[R + 1]` or None. For words: row `r` has the places from
            `place_splits[r]` to before `place_splits[r + 1]`.
        places: int32 `[P]` or None. Index within its row of each word's first token.
        detail: Data that the family needs to turn outputs into answers.
    """

    rows: inputs.EncodedTexts
    unit_splits: np.ndarray
    targets: Mapping[str, np.ndarray]
    truncated: np.ndarray
    place_splits: np.ndarray | None = None
    places: np.ndarray | None = None
    detail: Any = None

    def __len__(self) -> int:
        """Returns U."""
        return len(self.unit_splits) - 1


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyperparameters: one row of Table 14 (arXiv:1909.11942, appendix A.4).

    The dropout of the classifier is 0.1 in every row.

    Attributes:
        learning_rate: Peak, reached at the end of the warm-up.
        train_batch_size: Examples per step.
        dropout: "ALBERT DR": dropout of hidden states and attention.
        num_train_steps: "TS".
        num_warmup_steps: "WS".
        max_seq_length: "MSL".
    """

    learning_rate: float
    train_batch_size: int
    dropout: float
    num_train_steps: int
    num_warmup_steps: int
    max_seq_length: int = 512


@dataclasses.dataclass(frozen=True)
class Task:
    """A fine-tuning task; its class represents its family.

    Outputs of a model, for all rows in order, are a dict of arrays:

    - text classification: `logits` float32 `[U, C]`,
    - multiple choice: `logits` float32 `[R]`, one per choice,
    - tagging: `logits` float32 `[P, C]`,
    - question answering: `start_logits` and `end_logits` float32 `[tokens]`, for every
      token of every row, as `rows.ids`,
    - question answering with the beam head: `start_log_probs`, `start_index`
      `[R, S]`, `end_log_probs`, `end_index` `[R, S * E]`, `cls_logits` `[R]`.

    The family defines the form of the answers. Its methods receive examples of the
    family, their `EncodedExamples`, these outputs, and answers.

    Attributes:
        name: Name in the registry, such as "cola".
        head: The head that is trained, one of `heads.HEADS`.
        metrics: Takes the correct answers and the predictions and returns metric values
            by name. The type of an answer depends on the head: a class index, a score,
            a text, a sequence of tags.
        selecting_metric: Name of the metric that decides between two models.
        splits: `FileSource` by name of the split: "train", "dev", "test", or for
            example "dev_matched".
        labels: Label names in the order of the class indices. Empty if there are no
            classes, or if the training data defines them.
        other_labels: Other known names of the labels, in the same order, such as
            ("negative", "positive") for ("0", "1").
        positive_label: Of two labels, the one that F1, precision and recall refer to,
            whatever its index in `labels`.
        problem_type: `SINGLE_LABEL`, `MULTI_LABEL`, `REGRESSION`, or None for heads
            that have only one type.
        recipe: Published hyperparameters, or None.
        written: Of a table: label by its spelling in the table, if that is a class id;
            in multiple choice, the index of the choice.
        table: Of a table: its layout, as settings of `opening` that differ from the
            defaults.
    """

    name: str
    head: str
    metrics: Callable[[Any, Any], dict[str, float]]
    selecting_metric: str
    splits: Mapping[str, FileSource] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    other_labels: tuple[str, ...] = ()
    positive_label: str | None = None
    problem_type: str | None = None
    recipe: Recipe | None = None
    options: Options = Options()
    written: Mapping[str, str] = dataclasses.field(default_factory=dict)
    table: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_options(self, **changes) -> Self:
        """Returns the task with other values of `Options`."""
        options = dataclasses.replace(self.options, **changes)
        return dataclasses.replace(self, options=options)

    def usable(self, examples) -> Any:
        """Returns the usable examples; without skipping, others are a `DataError`."""
        return examples

    def to_evaluate(self, examples) -> Any:
        """Returns the examples to evaluate on, also for a split that is trained on."""
        return self.usable(examples)

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns the rows of examples, with targets if the examples have labels.

        Raises `DataError` with file, line and value if an example cannot be used.
        """

    def answers(self, examples, encoded, outputs) -> Any:
        """Returns the answers to all examples."""

    def compare(self, examples, answers) -> dict[str, float]:
        """Compares answers with labels: the task's metrics and trivial baselines."""

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the values of `compare` that can select a model.

        No model is needed. Baselines, counts and thresholds are left out, because they
        do not measure the model.
        """

    def collapse(self, examples, answers) -> str:
        """Returns a message describing signs of collapse, or an empty string."""

    def rows(self, examples, answers) -> list[dict[str, Any]]:
        """Returns the answer to each example, ready for JSON."""

    def cells(self, examples, answers) -> list[list[str]]:
        """Returns the answers as rows of cells, for most heads below a header.

        The last columns may differ for other examples of the same file.
        """

    def strata(self, examples) -> list[tuple[Any, Any]]:
        """Returns, for each example, a group that stays together, and a kind.

        Examples that are held back contain a share of every kind.
        """
        return list(enumerate(examples.labels))

    def hold_back(self, examples, seed: int) -> tuple[Any, Any]:
        """Returns examples to train on, and others to calibrate on or None."""
        return examples, None

    def calibrate(self, examples, encoded, outputs) -> Self:
        """Returns the task with settings chosen on examples held back from training."""
        return self

    def report(self, examples, answers, encoded: EncodedExamples) -> dict:
        """Returns the content of a report; see `reports.task_report`."""


def without_places(value: Any) -> Any:
    """Converts examples, or a part of them, for JSON, without their places."""
    if isinstance(value, np.generic):
        return value.item()
    content = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.name not in _PLACES
    }
    if content.get("groups", "") is None:
        del content["groups"]  # older runs know of none
    return content


def table_text(rows: Iterable[Sequence[str]], delimiter: str = "\t") -> str:
    """Returns rows of cells as the content of a file."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def warn_of_collapse(task: Task, examples: Any, answers: Any) -> None:
    """Logs a warning if answers to labelled examples show that training collapsed."""
    if problem := task.collapse(examples, answers):
        logging.warning(
            "%s: %s; if it was fine-tuned just now, training collapsed: try a lower "
            "learning rate, a longer warm-up or another seed",
            examples.path,
            problem,
        )
