"""Runs a fine-tuned model of any head on the examples of its task.

`evaluate`, `predict` and the Python classes of this folder share it, so that all give
the same numbers.
"""

import dataclasses
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from absl import logging

from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import (
    CHOICES,
    FINE_TUNED,
    GENERATOR,
    HEADS,
    LABELS,
    SPANS,
    TAGS,
    TO_VECTORS,
    VECTORS,
    answering,
    find,
    problem_type_of,
)
from albert_tf.inference.forward import MAX_BATCH_TOKENS, compile_head, steps
from albert_tf.models.exit_rules import ExitRule
from albert_tf.tasks import saved
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import Forward, collect_outputs
from albert_tf.tasks.squad_features import with_room
from albert_tf.tasks.task import (
    REGRESSION,
    EncodedExamples,
    Options,
    Task,
    warn_of_collapse,
)
from albert_tf.text import inputs
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras

# The heads that are fine-tuned. A file that names none of them is tried as the first.
_HEADS = answering(*FINE_TUNED)
# The classes that load these heads, by the kind of answers.
_CLASSES = {LABELS: "Classifier", TAGS: "TokenClassifier", SPANS: "QuestionAnswerer"}
_CLASSES |= {CHOICES: "MultipleChoice", VECTORS: "Embedder"}


class Loadable:
    """Base of classes with a model and its tokenizer that can be loaded from files.

    Attributes:
        heads: tuple of str or None. Names of the heads that the model may have; None
            for the encoder alone. The files' own head is used if it is one of them, and
            the first one otherwise.
    """

    heads: ClassVar[tuple[str | None, ...]]

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike,
        tokenizer: Tokenizer | str | os.PathLike | None = None,
        *,
        head: str | None = None,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
        layers: int | None = None,
        **kwargs,
    ) -> Self:
        """Loads the model, its recorded settings, and its tokenizer.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.
            tokenizer: `Tokenizer` or path. Needed if `path` contains none; one that
                differs from the tokenizer in `path` is rejected.
            head: str or None. Name of the head, if the files do not name it.
            do_lower_case: bool or None. Needed if the tokenizer keeps case and `path`
                does not say so.
            keep_accents: bool or None. Needed if the tokenizer keeps accents and
                `path` does not say so.
            layers: int or None. Number of layers to compute, the first ones of the
                model; None for all.
            **kwargs: Other arguments of this class.

        Raises:
            UsageError: If the files do not contain a model with such a head, or
                contradict an argument.
        """
        heads = cls.heads if head is None else (head,)
        names = ", ".join(map(str, cls.heads))
        is_known = all(one in cls.heads for one in heads)
        require(is_known, f"head must be one of {names}", head)
        with open_checkpoint(path) as opened:
            checkpoint = opened.for_head(heads[0])
            head = choose_head(checkpoint, heads)
            tokenizer = choose_tokenizer(
                checkpoint, tokenizer, do_lower_case, keep_accents
            )
            model = build_trained(checkpoint, head, layers=layers)
        return cls(model, tokenizer, **kwargs)


def build_trained(
    checkpoint: Checkpoint, head: str | None, **kwargs: Any
) -> "keras.Model":
    """Builds a model from an open checkpoint; see `keras_model.build_model`.

    Raises `UsageError` if its head was not trained: predictions would be noise that
    looks like an answer.
    """
    # Keras is imported only after the checks that do not need it.
    from albert_tf.converters.keras_model import build_model

    model = build_model(checkpoint, head, **kwargs)
    for name in model.untrained_weights:
        part, path = name.partition("/")[0], checkpoint.path
        trained = not find(head).owns(name)
        require(trained, f"{path}: has no trained {part} ({name} is missing)")
    return model


def choose_head(checkpoint: Checkpoint, heads: Sequence[str | None]) -> str | None:
    """Returns the head to build from an open checkpoint, before weights are read.

    `heads` names the acceptable heads; see `Loadable`. Raises `UsageError` if a part of
    the head has no weights at all, and `DataError` if the encoder holds an unknown
    tensor.
    """
    checkpoint.check_unknown(with_heads=False)
    head = checkpoint.head if checkpoint.head in heads else heads[0]
    for part in find(head).parts:
        has_part = any(name.startswith(f"{part}/") for name in checkpoint.tensors)
        is_other = checkpoint.head == "discriminator" and find(head).has_masked_lm
        require(
            has_part or not is_other,
            f"{checkpoint.path}: is ELECTRA's discriminator, which fills no masks; "
            f"give the folder of the generator, or of the run that holds {GENERATOR}/",
        )
        hint = f"; {TO_VECTORS}" if "text_embedder" in heads else ""
        require(
            has_part,
            f"{checkpoint.path}: has no trained {part}, as a model has that was "
            f"fine-tuned; its head is {checkpoint.head or 'none'}{hint}",
        )
    own = find(checkpoint.head)
    is_other = own.has_classifier and find(head).has_classifier
    is_other = is_other and not checkpoint.has_classifier_of(head)
    expected = f"{checkpoint.path}: is a {own.name}, not a {head}; albert_tf."
    require(not is_other, f"{expected}{_CLASSES.get(own.answers)} loads it")
    return head


def check_fits(model: "keras.Model", tokenizer: Tokenizer) -> None:
    """Raises `UsageError` if the tokenizer has more tokens than the model."""
    most = model.config.vocab_size
    expected = f"tokenizer: expected at most vocab_size={most} tokens, as the model has"
    require(tokenizer.vocab_size <= most, expected, tokenizer.vocab_size)


def as_texts(name: str, texts: str | bytes | Iterable[str | bytes]) -> list:
    """Returns one text or several, str or UTF-8 bytes, as a list.

    Raises `UsageError`, which names the argument, if an element is not a string.
    """
    if isinstance(texts, str | bytes):
        return [texts]
    several = isinstance(texts, Iterable) and not isinstance(texts, Mapping | Set)
    # A DataFrame would yield the names of its columns.
    several = several and not hasattr(texts, "columns")
    expected = f"{name} must be a string or a list of strings"
    require(several, f"{expected}, received {type(texts).__name__}")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise UsageError(f"{name}[{i}] must be a string, received {text!r:.80}")
    return texts


def as_unicode(name: str, texts: str | bytes | Iterable[str | bytes]) -> list[str]:
    """Returns one text or several as a list of str; see `as_texts`.

    Bytes that are not UTF-8 become spaces. A str is not changed, so that positions in
    it are valid for the caller.
    """
    return [
        text if isinstance(text, str) else to_unicode(text)
        for text in as_texts(name, texts)
    ]


def check_list(name: str, value: Any) -> None:
    """Raises `UsageError` if an argument is not a sequence of several things."""
    kind, is_table = type(value).__name__, hasattr(value, "columns")
    single = isinstance(value, str | bytes | Mapping | Set)
    if single or is_table or not isinstance(value, Iterable):
        # Not `require`: describing a long list takes time.
        shown = kind if is_table else f"{kind} {value!r:.60}"
        raise UsageError(f"{name} must be a list, received {shown}")


def check_count(name: str, value: Any) -> None:
    """Raises `UsageError` if an argument is not a positive integer."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    expected = f"{name} must be a positive integer, received {value!r:.80}"
    require(is_integer and value >= 1, expected)


class Predictor(Loadable):
    """Answers the examples of a task with a fine-tuned model, and scores the answers.

    `Classifier`, `QuestionAnswerer` and others answer single texts.

    Args:
        model: keras.Model. One of the classifiers or question answering models.
        tokenizer: `Tokenizer`.
        task: str or `Task`. Name of a task to use the model for, or the result of
            `find_task`. Default: the task that it was fine-tuned on, or what its head
            can do if no task is on record.
        max_seq_length: int. Maximum length of a row. Default: as in fine-tuning, or
            else the model's maximum.
        batch_size: int. Rows per call of the model.
        max_batch_tokens: int. Maximum number of tokens per call of the model.
        num_threads: int. Number of concurrent calls.
        exit: str, `ExitRule` or None. Rule by which a text classifier with exits stops
            early, such as "entropy:0.3".
        **options: Other fields of `tasks.task.Options`, such as `doc_stride` or
            `null_threshold`; None for the value of fine-tuning. `on_bad_input` is
            "stop" by default.

    Attributes:
        head: str. Name of the model's head.
        task: `Task`. With the labels of the model and the options to be used.
        used_layers: int32 `[R]` or None. Number of layers that each row of the last
            `answers` passed, if there is a rule.
        checks_finite: bool. Whether outputs that are not finite are an error rather
            than a warning.

    Example:
        >>> predictor = Predictor.from_pretrained("my_squad_model")
        >>> examples = predictor.task.splits["dev"].read("squad")
        >>> answers = predictor.answers(examples)
        >>> predictor.metrics(examples, answers)
    """

    heads = _HEADS
    checks_finite = True

    def __init__(
        self,
        model: "keras.Model",
        tokenizer: Tokenizer,
        *,
        task: str | Task = "",
        max_seq_length: int | None = None,
        batch_size: int = 32,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        num_threads: int = 1,
        exit: ExitRule | str | None = None,
        **options,
    ):
        from albert_tf.converters.keras_model import head_of

        self.head = head_of(model)
        expected = "a fine-tuned model"
        if type(self) is not Predictor:
            names = [HEADS[head].load_class().__name__ for head in self.heads]
            expected = f"an {' or '.join(names)}"
        demand = f"model must be {expected}, received {type(model).__name__}"
        require(self.head in self.heads, demand)
        check_fits(model, tokenizer)
        tokenizer = tokenizer.for_segments(model.config.num_segments)
        check_count("batch_size", batch_size)
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        own_task = task if isinstance(task, Task) else _task_of(model, self.head, task)
        changes = {"max_seq_length": max_seq_length, **options}
        changes = {name: value for name, value in changes.items() if value is not None}
        longest = model.config.max_position_embeddings
        _check_options(changes, longest)
        start = dataclasses.replace(own_task.options, **changes)
        if HEADS[self.head].answers_spans and not getattr(model, "task", None):
            start = with_room(start, 2 + tokenizer.pair_separators)
            start = dataclasses.replace(start, **changes)
        self.task: Task = dataclasses.replace(own_task, options=start)
        length, pad_id = start.max_seq_length, tokenizer.pad_id
        self._shape = BatchShape(self.head, length, longest, pad_id, **steps())
        self.used_layers: np.ndarray | None = None
        self._forward = compile_head(model, self.head, exit)
        self._max_batch_tokens = max_batch_tokens
        self._num_threads = num_threads

    @property
    def options(self) -> Options:
        """Options that determine how examples become rows and outputs answers."""
        return self.task.options

    def encoded(self, examples: Any) -> EncodedExamples:
        """Returns the rows of examples of the task's family.

        Raises `DataError` if an example cannot be used, and `UsageError` if the options
        leave no room for text.
        """
        return self.task.encode(examples, self.tokenizer)

    def answers(
        self,
        examples: Any,
        encoded: EncodedExamples | None = None,
        forward: Forward | None = None,
        on_batch: Callable[[int], None] = lambda rows: None,
        title: str = "",
    ) -> Any:
        """Returns the family's answers to all examples.

        Raises `DataError` if an example cannot be used, or an output is not finite.
        """
        if encoded is None:
            encoded = self.encoded(examples)
        outputs = self.outputs(encoded, forward, on_batch, title)
        return self.task.answers(examples, encoded, outputs)

    def metrics(self, examples: Any, answers: Any) -> dict[str, float]:
        """Compares answers with the labels of examples."""
        return self.task.compare(examples, answers)

    def evaluate(self, examples: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Answers labelled examples; returns the metrics, and `Task.report`."""
        encoded = self.encoded(examples)
        answers = self.answers(examples, encoded, title="evaluate")
        warn_of_collapse(self.task, examples, answers)
        values = {"examples": len(examples), **self.metrics(examples, answers)}
        if self.used_layers is not None:
            values["mean_layers"] = float(self.used_layers.mean())
        return values, self.task.report(examples, answers, encoded)

    def outputs(
        self,
        encoded: EncodedExamples,
        forward: Forward | None = None,
        on_batch: Callable[[int], None] = lambda rows: None,
        title: str = "",
    ) -> dict[str, np.ndarray]:
        """Returns the model's outputs for all rows.

        Raises `DataError` if an output is not finite.

        Args:
            on_batch: callable. Called with the number of rows after every batch.
        """
        self.used_layers = None
        if not len(encoded.rows):
            # Sentences without words have no rows.
            return {"logits": np.zeros((0, len(self.task.labels) or 1), np.float32)}
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
        self.used_layers = outputs.get("num_layers")
        for name, values in outputs.items():
            if np.isfinite(values).all():
                continue
            expected = f"{self.model.name}: its {name} are not finite; its weights are "
            expected += "damaged, or training diverged"
            require(not self.checks_finite, expected, error=DataError)
            logging.warning("%s", expected)
        return outputs


def find_task(
    path: str | os.PathLike, name: str = "", max_seq_length: int | None = None
) -> Task:
    """Returns the task that a `Predictor` of a model has, without reading its weights.

    A wrong path, model or task is thus an error before a large model is loaded. Raises
    `UsageError` if the files do not contain a fine-tuned model, or it is not one for
    the task, or rows of that length are impossible, and `DataError` if the files are
    missing or damaged.
    """
    with open_checkpoint(path) as checkpoint:
        head = choose_head(checkpoint, _HEADS)
        longest = checkpoint.config.max_position_embeddings
        if max_seq_length is not None:
            _check_options({"max_seq_length": max_seq_length}, longest)
        recorded = ("labels", "problem_type", "max_seq_length", "task")
        same = head == checkpoint.head
        model = types.SimpleNamespace(
            config=checkpoint.config,
            num_labels=HEADS[head].fixed_labels or checkpoint.num_labels,
            prompts=checkpoint.head_options.get("prompts") if same else None,
            **{name: getattr(checkpoint, name) if same else None for name in recorded},
        )
        return _task_of(model, head, name)


def _task_of(model: Any, head: str | None, name: str) -> Task:
    """Returns the model's task; labels without names are called `LABEL_0`, ..."""
    kind = problem_type_of(model) if HEADS[head].answers == LABELS else None
    task = saved.task_of(model, head, kind, name)
    has_labels = HEADS[head].fixed_labels is None and HEADS[head].has_classifier
    if not has_labels or kind == REGRESSION:
        return task
    if not task.labels:
        # Not set on the model, which belongs to the caller.
        facts = ("config", "max_seq_length", "task")
        named = types.SimpleNamespace(
            labels=[f"LABEL_{i}" for i in range(model.num_labels)],
            **{fact: getattr(model, fact, None) for fact in facts},
        )
        task = saved.task_of(named, head, kind, name)
    demand = f"task: {task.name} has {len(task.labels)} labels, received a model with "
    require(len(task.labels) == model.num_labels, f"{demand}{model.num_labels}")
    return task


def _check_options(options: dict[str, Any], longest: int) -> None:
    """Raises `UsageError` if a value is of the wrong type or too large."""
    for name, value in options.items():
        if name == "null_threshold":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            is_number = number and not math.isnan(value)
            require(is_number, f"{name} must be a number", value)
        elif name != "on_bad_input":
            check_count(name, value)
    if "max_seq_length" in options:
        length = options["max_seq_length"]
        inputs.check_max_seq_length(length, pairs=False, longest=longest)
