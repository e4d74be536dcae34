"""What a fine-tuning task is: its data, its labels, its metrics and its recipe.

A task is one `Task` object. A family of tasks (classification of texts, extraction of
answers, ...) is a module of this folder that makes such objects; `registry` names them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from absl import logging

from albert_tf.errors import MissingFileError, UsageError
from albert_tf.storage import files
from albert_tf.tables.columns import warn_of_skipped
from albert_tf.tasks.definitions.family import Family, Options

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


class Examples:
    """Base of dataclasses of examples, where each list has an item per example.

    Attributes:
        path: str. Where they are from, for messages.
        ids: list of str. Name of each example.
        skipped: dict. Number of examples left out, by reason.
    """

    path: str
    ids: list[str]
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int]) -> Self:
        """Returns the examples of these indices, in this order."""
        lists = {k: v for k, v in vars(self).items() if isinstance(v, list)}
        chosen = {key: [column[i] for i in rows] for key, column in lists.items()}
        return dataclasses.replace(self, **chosen)

    def kept(self, rows: Sequence[int], counts: Mapping[str, int]) -> Self:
        """Returns the examples of these indices, and says how many others there are."""
        warn_of_skipped(self.path, counts)
        skipped = {**self.skipped, **counts}
        return dataclasses.replace(self.select(rows), skipped=skipped)


class Source(Protocol):
    """Where the examples of one split come from.

    The examples are of the type that the task's family uses: a `tables.TextTable` for
    classification of texts, questions with contexts for extraction of answers.
    """

    def read(self, folder: str = "") -> Any:
        """Returns the examples.

        Args:
            folder: str. Folder of the data, where the source only knows file names.

        Raises:
            DataError: If the data is missing or malformed.
        """


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyperparameters: one row of Table 14 (arXiv:1909.11942, appendix A.4).

    The dropout of the classifier is 0.1 in every row.

    Attributes:
        learning_rate: float. Peak, reached at the end of the warm-up.
        train_batch_size: int. Examples per step.
        dropout: float. "ALBERT DR": dropout of hidden states and attention.
        num_train_steps: int. "TS".
        num_warmup_steps: int. "WS".
        max_seq_length: int. "MSL".
    """

    learning_rate: float
    train_batch_size: int
    dropout: float
    num_train_steps: int
    num_warmup_steps: int
    max_seq_length: int = 512


@dataclasses.dataclass(frozen=True)
class Task:
    """A fine-tuning task.

    Attributes:
        name: str. Name in the registry, such as "cola".
        head: str. The head that is trained, one of `heads.HEADS`.
        metrics: callable. Takes the correct answers and the predictions and returns
            metric values by name. What an answer is depends on the head: a class
            index, a score, a text, a sequence of tags.
        selecting_metric: str. Name of the metric that decides between two models.
        splits: dict. `Source` by name of the split: "train", "dev", "test", or for
            example "dev_matched".
        labels: tuple of str. Label names in the order of the class indices. Empty
            where there are no classes, or where the training data defines them.
        positive_label: str or None. Of two labels, the one that F1, precision and
            recall are about, wherever it is in `labels`.
        problem_type: str. `SINGLE_LABEL`, `MULTI_LABEL`, `REGRESSION`, or None for
            heads that have only one type.
        recipe: `Recipe`. Published hyperparameters, or None.
        family: `Family`. Turns examples into rows, and outputs into answers.
        options: `Options`. Default sizes of the task.
        written: dict. Of a table: label by how the table writes it, where that is a
            class id; in multiple choice, the index of the choice.
        table: dict. Of a table: how it is laid out, the settings of `own_files` that
            were given.
    """

    name: str
    head: str
    metrics: Callable[[Any, Any], dict[str, float]]
    selecting_metric: str
    splits: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    positive_label: str | None = None
    problem_type: str | None = None
    recipe: Recipe | None = None
    family: Family | None = None
    options: Options = Options()
    written: Mapping[str, str] = dataclasses.field(default_factory=dict)
    table: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def warn_of_collapse(task: Task, examples: Any, answers: Any) -> None:
    """Logs a warning if answers show that training collapsed.

    Args:
        task: `Task`.
        examples: Labelled examples of the task's family.
        answers: The answers to them.
    """
    if problem := task.family.collapse(task, examples, answers):
        logging.warning(
            "%s: %s; if it was fine-tuned just now, training collapsed: try a lower "
            "learning rate, a longer warm-up or another seed",
            examples.path,
            problem,
        )


def find_file(
    folder: str, folders: Sequence[str], names: Sequence[str], hint: str = ""
) -> str:
    """Returns the first of several files that exists.

    Args:
        folder: str. Folder of the data.
        folders: sequence of str. Folders in it that may hold the file.
        names: sequence of str. Names that the file may have.
        hint: str. End of the message if there is none.

    Raises:
        UsageError: If no folder is given.
        MissingFileError: If no such file exists.
    """
    if not folder:
        raise UsageError(f"data_dir must be the folder of {names[0]}, received none")
    for inner in folders:
        for name in names:
            path = files.join(folder, *filter(None, [inner]), name)
            if files.exists(path):
                return path
    raise MissingFileError(f"{folder}: no file {' or '.join(names)}{hint}")
