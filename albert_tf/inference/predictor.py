"""Runs a fine-tuned model of any head on the examples of its task.

`evaluate`, `predict` and the Python classes of this folder share it, so that all give
the numbers that fine-tuning reported.
"""

import dataclasses
import math
import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.converters.detect import open_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import (
    FINE_TUNED,
    HEADS,
    LABELS,
    answering,
    problem_type_of,
)
from albert_tf.inference import base
from albert_tf.models.exit_rules import ExitRule
from albert_tf.tasks import saved
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import Forward, collect_outputs
from albert_tf.tasks.squad_features import with_room
from albert_tf.tasks.task import REGRESSION, EncodedExamples, Options, Task
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras

# The heads that are fine-tuned. A file that names none of them is tried as the first.
_HEADS = answering(*FINE_TUNED)


class Predictor(base.Loadable):
    """Answers the examples of a task with a fine-tuned model, and scores the answers.

    For single texts there are `Classifier`, `QuestionAnswerer` and the others.

    Args:
        model: keras.Model. One of the classifiers or question answering models.
        tokenizer: `Tokenizer`.
        task: str or `Task`. Name of a task to use the model for, or what `find_task`
            returned. Default: the one that it was fine-tuned on, or what its head can
            do if no task is on record.
        max_seq_length: int. Maximum length of a row. Default: as in fine-tuning, or
            else the model's maximum.
        batch_size: int. Rows per call of the model.
        forward: callable or None. What runs batches in place of the model: the same
            model in another format (see `inference.converted`).
        max_batch_tokens: int or None. Tokens per call of the model, at most.
        length_step: int or None. Lengths of rows are rounded up to a multiple of it.
        num_threads: int. How many calls are made at the same time.
        exit: str, `ExitRule` or None. Rule by which a text classifier with exits stops
            early, such as "entropy:0.3".
        **options: Other fields of `tasks.task.Options`, such as `doc_stride` or
            `null_threshold`; None for that of fine-tuning. `on_bad_input` is "stop"
            unless given.

    Attributes:
        head: str. Name of the model's head.
        task: `Task`. With the labels of the model and the options to be used.
        num_layers: int32 `[R]` or None. Layers that each row of the last `answers` has
            passed, if there is a rule.

    Example:
        >>> predictor = Predictor.from_pretrained("my_squad_model")
        >>> examples = predictor.task.splits["dev"].read("squad")
        >>> answers = predictor.answers(examples)
        >>> predictor.metrics(examples, answers)
    """

    heads = _HEADS

    def __init__(
        self,
        model: "keras.Model",
        tokenizer: Tokenizer,
        *,
        task: str | Task = "",
        max_seq_length: int | None = None,
        batch_size: int = 32,
        forward: Forward | None = None,
        max_batch_tokens: int | None = None,
        length_step: int | None = None,
        num_threads: int = 1,
        exit: ExitRule | str | None = None,
        **options,
    ):
        from albert_tf.converters.keras_model import head_of
        from albert_tf.models.exits import ElasticClassifier
        from albert_tf.tasks.outputs import as_forward

        base.check_fits(model, tokenizer)
        base.check_count("batch_size", batch_size)
        self.head = head_of(model)
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        found = task if isinstance(task, Task) else _task_of(model, self.head, task)
        given = {"max_seq_length": max_seq_length, **options}
        given = {name: value for name, value in given.items() if value is not None}
        _check_options(given, model.config.max_position_embeddings)
        start = dataclasses.replace(found.options, **given)
        if HEADS[self.head].answers_spans and not getattr(model, "task", None):
            start = dataclasses.replace(with_room(start), **given)
        self.task: Task = dataclasses.replace(found, options=start)
        self._shape = BatchShape(
            self.head,
            start.max_seq_length,
            model.config.max_position_embeddings,
            tokenizer.pad_id,
            **({} if length_step is None else {"step": length_step}),
        )
        self.num_layers: np.ndarray | None = None
        runner = model if exit is None else ElasticClassifier(model, exit)
        self._forward = forward or as_forward(runner, self.head)
        self._max_batch_tokens = max_batch_tokens
        self._num_threads = num_threads

    @property
    def options(self) -> Options:
        """How examples become rows and outputs answers."""
        return self.task.options

    def encoded(self, examples: Any) -> EncodedExamples:
        """Returns the rows of examples of the task's family.

        Raises:
            DataError: If an example cannot be used.
            UsageError: If the options leave no room for text.
        """
        return self.task.family.encode(
            self.task, examples, self.tokenizer, self.options
        )

    def answers(
        self,
        examples: Any,
        encoded: EncodedExamples | None = None,
        on_batch: Callable[[int], None] = lambda rows: None,
        title: str = "",
    ) -> Any:
        """Returns the family's answers to all examples.

        Args:
            examples: Examples of the task's family.
            encoded: `EncodedExamples` or None. The same as rows, if available.
            on_batch: callable. Called with the number of rows after every batch.
            title: str. Title of a progress bar; empty for none.

        Raises:
            DataError: If an example cannot be used, or an output is not finite.
        """
        if encoded is None:
            encoded = self.encoded(examples)
        outputs = self.outputs(encoded, on_batch=on_batch, title=title)
        return self.task.family.answers(
            self.task, examples, encoded, outputs, self.options
        )

    def metrics(self, examples: Any, answers: Any) -> dict[str, float]:
        """Compares answers with the labels of examples."""
        return self.task.family.metrics(self.task, examples, answers)

    def outputs(
        self,
        encoded: EncodedExamples,
        forward: Forward | None = None,
        on_batch: Callable[[int], None] = lambda rows: None,
        title: str = "",
    ) -> dict[str, np.ndarray]:
        """Returns the model's outputs for all rows.

        Args:
            encoded: `EncodedExamples`.
            forward: callable or None. What runs the batches in place of the model.
            on_batch: callable. Called with the number of rows after every batch.
            title: str. Title of a progress bar; empty for none.

        Raises:
            DataError: If an output is not finite.
        """
        if not len(encoded.rows):
            # Sentences without words have no rows.
            return {"logits": np.zeros((0, len(self.task.labels)), np.float32)}
        outputs = collect_outputs(
            forward or self._forward,
            encoded,
            self._shape,
            self.batch_size,
            on_batch,
            max_tokens=self._max_batch_tokens,
            num_threads=self._num_threads,
            title=title,
        )
        self.num_layers = outputs.get("num_layers")
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                raise DataError(
                    f"{self.model.name}: its {name} are not finite; its weights are "
                    "damaged, or training diverged"
                )
        return outputs


class Answerer(base.Loadable):
    """What the Python classes around a `Predictor` have in common.

    Args:
        model: keras.Model. A model with one of the class's heads.
        tokenizer: `Tokenizer`.
        **kwargs: Other arguments of `Predictor`.
    """

    def __init__(self, model: "keras.Model", tokenizer: Tokenizer, **kwargs):
        from albert_tf.converters.keras_model import head_of

        if head_of(model) not in self.heads:
            names = " or ".join(HEADS[h].load_class().__name__ for h in self.heads)
            raise UsageError(
                f"model must be an {names}, received {type(model).__name__}"
            )
        self.predictor = Predictor(model, tokenizer, **kwargs)
        self.model = model
        self.tokenizer = tokenizer


def find_task(
    path: str | os.PathLike, name: str = "", max_seq_length: int | None = None
) -> Task:
    """Returns the task that a `Predictor` of a model has, without reading its weights.

    A wrong path, model or task is thus an error before a large model is loaded.

    Args:
        path: str or path. As for `Predictor.from_pretrained`.
        name: str. Name of another task to use the model for.
        max_seq_length: int or None. Length that rows will have, to be checked.

    Raises:
        UsageError: If the files do not contain a fine-tuned model, or it is not one
            for the task, or rows of that length are impossible.
        DataError: If the files are missing or damaged.
    """
    with open_checkpoint(path) as checkpoint:
        head = base.choose_head(checkpoint, _HEADS)
        longest = checkpoint.config.max_position_embeddings
        if max_seq_length is not None:
            _check_options({"max_seq_length": max_seq_length}, longest)
        recorded = ("labels", "problem_type", "max_seq_length", "task")
        same = head == checkpoint.head
        model = types.SimpleNamespace(
            config=checkpoint.config,
            num_labels=HEADS[head].fixed_labels or checkpoint.num_labels,
            **{name: getattr(checkpoint, name) if same else None for name in recorded},
        )
        return _task_of(model, head, name)


def _task_of(model: Any, head: str | None, name: str) -> Task:
    """Returns the model's task; labels without names are called `LABEL_0`, ..."""
    if head not in _HEADS:
        raise UsageError(
            f"model: expected a fine-tuned model, received {type(model).__name__}"
        )
    kind = problem_type_of(model) if HEADS[head].answers == LABELS else None
    task = saved.task_of(model, head, kind, name)
    has_labels = HEADS[head].fixed_labels is None and HEADS[head].has_classifier
    if not has_labels or kind == REGRESSION:
        return task
    if not task.labels:
        # Not on the model, which belongs to the caller.
        facts = ("config", "max_seq_length", "task")
        named = types.SimpleNamespace(
            labels=[f"LABEL_{i}" for i in range(model.num_labels)],
            **{fact: getattr(model, fact, None) for fact in facts},
        )
        task = saved.task_of(named, head, kind, name)
    if len(task.labels) != model.num_labels:
        raise UsageError(
            f"task: {task.name} has {len(task.labels)} labels, received a model with "
            f"{model.num_labels}"
        )
    return task


def _check_options(given: dict[str, Any], longest: int) -> None:
    """Raises a UsageError if a value is of the wrong type or too large."""
    for name, value in given.items():
        if name == "null_threshold":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or math.isnan(value):
                raise UsageError(f"{name} must be a number, received {value!r}")
        elif name != "on_bad_input":
            base.check_count(name, value)
    if "max_seq_length" in given:
        length = given["max_seq_length"]
        inputs.check_max_seq_length(length, pairs=False, longest=longest)
