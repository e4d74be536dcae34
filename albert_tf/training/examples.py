"""Reads, checks and encodes the examples of a fine-tuning run."""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.converters.detect import check_path
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import HEADS
from albert_tf.tasks import opening
from albert_tf.tasks.embedding import EmbeddingTask
from albert_tf.tasks.registry import find_recipe
from albert_tf.tasks.task import SINGLE_LABEL, EncodedExamples, Task, without_places
from albert_tf.tasks.text_tables import label_key
from albert_tf.text.inputs import check_max_seq_length
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.teachers import check_teacher, find_teacher
from albert_tf.training.vectors import with_settings, without_teacher

# The split held back from the training examples to choose a threshold.
CALIBRATION = "calibration"
_ANSWER_HEADS = {"span": "question_answering", "beam": "beam_question_answering"}
# Share of the training examples that is held back from sets with only two parts.
_DEV_FRACTION = 0.1
_NO_SPLIT = "; --dev_fraction=0 trains on all"
# Share of truncated training examples that is worth a warning.
_MANY = 0.05


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of a split, in the form of the task's family and encoded as rows."""

    examples: Any
    encoded: EncodedExamples

    @property
    def is_labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.examples.labels is not None


@dataclasses.dataclass(frozen=True)
class RunExamples:
    """Task, with options and with labels in the model's order, and splits of a run."""

    task: Task
    splits: dict[str, Split]

    @property
    def train(self) -> EncodedExamples:
        """The training examples."""
        return self.splits["train"].encoded

    @property
    def dev_splits(self) -> list[str]:
        """The names of the splits to evaluate; the first one decides."""
        names = [name for name in self.splits if name.startswith("dev")]
        return [name for name in names if self.splits[name].is_labelled]

    def check_metric(self, metric: str, needs_dev: Sequence[str]) -> None:
        """Checks that the metric, if named, and dev examples for `needs_dev` exist.

        Raises `UsageError` before training if not; `needs_dev` names settings.
        """
        names, task = self.dev_splits, self.task
        require(
            names or not needs_dev,
            f"{', '.join(needs_dev)}: there are no dev examples to evaluate on "
            "(--dev_fraction holds some back)",
        )
        metrics = [
            name if split == names[0] else f"{split}_{name}"
            for split in names
            for name in task.metric_names(self.splits[split].examples)
        ]
        if metric and metric not in metrics:
            reason = " (the loss is measured on training batches only)"
            raise UsageError(
                f"metric must be one of {', '.join(metrics)}, received {metric!r}"
                + (reason if metric == "loss" else "")
            )

    def truncation(self) -> str:
        """Returns a warning if many training examples lose text, otherwise ""."""
        lost = self.splits["train"].encoded.truncated
        if lost.mean() < _MANY:
            return ""
        return (
            f"{lost.sum():,} of {len(lost):,} training examples ({lost.mean():.0%}) do "
            f"not fit into max_seq_length={self.task.options.max_seq_length} and lose "
            "text."
        )

    def digest(self) -> dict[str, str]:
        """Returns a digest of the examples, rows and targets of every split."""
        digests = {name: _digest(split) for name, split in self.splits.items()}
        # Leaving out a split changes which weights are kept.
        return {"splits": ", ".join(sorted(digests)), **digests}


Read = tuple[FinetuneSettings, Task, dict[str, Any]]


def read_task(settings: FinetuneSettings) -> Read:
    """Returns settings, task with its labels, and examples by split.

    The settings have the share of training examples held back as dev examples; the
    split "calibration" is held back to choose a threshold.
    """
    teacher = find_teacher(settings)
    alone = teacher if settings.teacher_weight == 1 else None
    task, examples = opening.open_task(settings, alone)
    require(
        "train" in examples,
        f"task: {task.name} has no training examples; it is evaluated with a model of "
        "another task",
    )
    task = with_settings(task, settings, examples["train"])
    if settings.answer_head and not isinstance(task, EmbeddingTask):
        need = f"answer_head: only for squad1 and squad2, received task={task.name}"
        require(HEADS[task.head].answers_spans, need)
        task = dataclasses.replace(task, head=_ANSWER_HEADS[settings.answer_head])
    if teacher:
        check_teacher(settings, teacher, task)
    task = task.with_options(on_bad_input=settings.on_bad_input)
    examples = {
        split: part if split.startswith("test") else task.usable(part)
        for split, part in examples.items()
    }
    settings, examples = _with_dev(settings, task, examples)
    train = examples["train"]
    train, held_back = task.hold_back(train, settings.seed)
    if settings.max_train_examples and settings.max_train_examples < len(train):
        order = np.random.default_rng(settings.seed).permutation(len(train))
        train = train.select(sorted(order[: settings.max_train_examples].tolist()))
    examples = {**examples, "train": train}
    if held_back is not None:
        examples[CALIBRATION] = held_back
    return settings, task, examples


def _with_dev(
    settings: FinetuneSettings, task: Task, examples: dict[str, Any]
) -> tuple[FinetuneSettings, dict[str, Any]]:
    """Holds dev examples back from training if there are none and some are needed."""
    dev = [name for name in examples if name.startswith("dev")]
    share, train = settings.dev_fraction, examples["train"]
    if share is None and settings.data_dir and not dev:
        tests = [part for name, part in examples.items() if name.startswith("test")]
        # The weights must not be chosen on the examples to be reported.
        if any(part.labels is not None for part in tests):
            share = _DEV_FRACTION
    if not share:
        if not dev:
            logging.warning(
                "%s: no dev examples: there is no metric, and the last weights are "
                "kept; --dev_file names some, --dev_fraction=0.1 holds back a tenth of "
                "the training examples",
                train.path,
            )
        return settings, examples
    require(not dev, "dev_fraction: only without dev examples", share)
    need = "dev_fraction: requires training examples with labels, which are not read "
    need += "at teacher_weight=1; give a dev_file"
    require(train.labels is not None, need, share)
    remaining, held = _drawn(task.strata(train), share)
    require(
        remaining and held,
        f"dev_fraction: {share} of {len(train)} examples leaves none to train or "
        "evaluate on (questions about one text stay together)" + _NO_SPLIT,
    )
    if task.problem_type == SINGLE_LABEL:
        _check_left(train, remaining, share)
    logging.info(
        "%s: %d of %d training examples are held back as dev examples, on which the "
        "weights are chosen",
        train.path,
        len(held),
        len(train),
    )
    skipping = task.with_options(on_bad_input="skip")
    dev_part = skipping.to_evaluate(train.select(held))
    first = {"train": train.select(remaining), "dev": dev_part}
    settings = settings.having(dev_fraction=share)
    return settings, first | {k: v for k, v in examples.items() if k != "train"}


def _check_left(train: Any, remaining: Sequence[int], share: float) -> None:
    """Raises `DataError` if a label has one example only, or none left to train on."""
    labels = list(map(label_key, train.labels))
    left = {labels[i] for i in remaining}
    for label, count in collections.Counter(labels).items():
        if count < 2 or label not in left:
            raise DataError(
                f"{train.path}: dev_fraction={share} needs at least 2 examples of each "
                f"label, and one of them left to train on, received {count} of "
                f"{label!r}{_NO_SPLIT}"
            )


def _drawn(strata: Sequence[tuple], share: float) -> tuple[list[int], list[int]]:
    """Returns the indices of the examples to train on, and of the ones to hold back."""
    # The draw does not depend on the seed of a run, so several seeds are compared on
    # the same examples.
    units: dict[Any, list[int]] = {}
    for i, (unit, _) in enumerate(strata):
        units.setdefault(unit, []).append(i)
    groups = list(units.values())
    order = np.random.default_rng(0).permutation(len(groups)).tolist()
    # Sorted by label, so that every nth group, which is held back, covers all labels.
    order.sort(key=lambda g: repr(label_key(strata[groups[g][0]][1])))
    last = [int(i * share + 0.5) for i in range(len(groups) + 1)]
    held = {i for n, g in enumerate(order) if last[n + 1] > last[n] for i in groups[g]}
    return [i for i in range(len(strata)) if i not in held], sorted(held)


def read_ahead(settings: FinetuneSettings) -> Callable[[], Read]:
    """Returns `read_task`, already called where that does not import TensorFlow.

    The library of prepared sets does; it is called later, but errors are raised now if
    they, or the initial checkpoint, do not exist.
    """
    if settings.init_checkpoint and not settings.albert_config_file:
        check_path(settings.init_checkpoint)
    if not opening.is_tfds(settings.data_dir):
        result = read_task(settings)
        return lambda: result
    opening.check_prepared(settings)
    return functools.partial(read_task, settings)


def recipe_of(settings: FinetuneSettings, task: Task) -> dict[str, Any]:
    """Returns the values of the requested recipe, or else of the task's own."""
    recipe = find_recipe(settings.recipe) if settings.recipe else task.recipe
    return dataclasses.asdict(recipe) if recipe else {}


def with_lengths(
    settings: FinetuneSettings, task: Task, config: AlbertConfig, tokenizer: Tokenizer
) -> tuple[FinetuneSettings, Task]:
    """Sets row sizes from the settings, else the recipe, the task and the model."""
    longest = config.max_position_embeddings
    length = settings.max_seq_length
    if length is None:
        recipe = recipe_of(settings, task)
        length = min(recipe.get("max_seq_length", task.options.max_seq_length), longest)
    check_max_seq_length(length, pairs=False, longest=longest)
    names = [field.name for field in dataclasses.fields(task.options)]
    values = {name: getattr(settings, name, None) for name in names}
    values["max_seq_length"] = length
    chosen = {name: value for name, value in values.items() if value is not None}
    options = dataclasses.replace(task.options, **chosen)
    budget = length - options.max_query_length - 2 - tokenizer.pair_separators
    if settings.doc_stride is None and budget > 0:
        # In short rows, the default step would be longer than a window.
        stride = min(options.doc_stride, -(-budget // 2))
        options = dataclasses.replace(options, doc_stride=stride)
    settings = settings.having(max_seq_length=length)
    return settings, dataclasses.replace(task, options=options)


def encode(task: Task, examples: dict[str, Any], tokenizer: Tokenizer) -> RunExamples:
    """Returns the examples as rows of tokens; the task has the model's labels."""
    splits = {}
    for name, part in examples.items():
        # A teacher's vectors belong to the rows of the training file.
        of_split = task if name == "train" else without_teacher(task)
        splits[name] = Split(part, of_split.encode(part, tokenizer))
    _check_classes(task, splits["train"])
    data = RunExamples(task, splits)
    train = splits["train"]
    if warning := data.truncation():
        logging.warning("%s: %s", train.examples.path, warning)
    # [CLS] and [SEP] alone, as of the missing values that pandas writes.
    if empty := np.count_nonzero(train.encoded.rows.lengths < 3):
        text = "%s: %d rows of training examples have no text"
        logging.warning(text, train.examples.path, empty)
    return data


def _check_classes(task: Task, train: Split) -> None:
    """Raises `DataError` if there is only one class to learn."""
    counted = len(train.examples) and train.is_labelled  # or a teacher labels them
    if task.problem_type != SINGLE_LABEL or not counted:
        return
    classes = np.unique(train.encoded.targets[features.LABELS])
    if len(classes) < 2:
        raise DataError(
            f"{train.examples.path}: expected at least 2 different labels, received "
            f"only {task.labels[classes[0]]!r}"
        )


def _digest(split: Split) -> str:
    encoded, sha256 = split.encoded, hashlib.sha256()
    # Metrics and predictions also read what rows do not hold: names, groups, texts,
    # all correct answers.
    sha256.update(json.dumps(split.examples, default=without_places).encode())
    arrays = {
        "ids": encoded.rows.ids,
        "splits": encoded.rows.splits,
        "first": encoded.rows.first_lengths,
        "units": encoded.unit_splits,
        "places": encoded.places,
        **encoded.targets,
    }
    for name, array in sorted(arrays.items()):
        if array is not None:
            array = np.ascontiguousarray(array)
            sha256.update(f"{name} {array.shape} {array.dtype}".encode())
            sha256.update(array.tobytes())
    return sha256.hexdigest()
