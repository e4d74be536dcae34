"""Settings of vectors: the model, the task and the objective that they describe."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import require
from albert_tf.objectives import embedding as objectives
from albert_tf.tasks.embedding import EmbeddingTask
from albert_tf.tasks.embedding_files import SCORES, TEXTS
from albert_tf.tasks.task import EncodedExamples, Task
from albert_tf.training.finetune_settings import FinetuneSettings

_ROLES = ("query", "passage")
# Settings that only vectors have.
_NAMES = (
    "pooling",
    "projection_size",
    "prompt",
    "similarity_scale",
    "both_directions",
    "score_loss",
    "embedding_dims",
    "embedding_layers",
    "teacher_vectors",
    "teacher_loss",
)


def with_settings(task: Task, settings: FinetuneSettings, train: Any) -> Task:
    """Returns a task with the prompts and the teacher that the settings name.

    Raises `UsageError` if settings of vectors are given for another task, or the
    teacher's vectors cannot belong to the training examples.
    """
    usual = settings.defaults()
    given = [name for name in _NAMES if getattr(settings, name) != usual[name]]
    if not isinstance(task, EmbeddingTask):
        need = f"{', '.join(given)}: only for vectors, not for the task {task.name}"
        require(not given, need)
        return task
    prompts = {}
    for item in settings.prompt:
        role, is_text, text = item.partition("=")
        need = f"prompt: expected one of {', '.join(_ROLES)}, and its text after ="
        require(is_text and role in ("", *_ROLES), need, item)
        prompts[role] = text
    teacher = settings.teacher_vectors
    need = "teacher_vectors: only for texts alone, without positives or scores"
    require(not teacher or train.form == TEXTS, need, train.form)
    # Rows of the file and of the vectors are compared by their numbers.
    need = "teacher_vectors: not with id_column or on_bad_input=skip"
    plain = not settings.id_column and settings.on_bad_input == "stop"
    require(not teacher or plain, need)
    return dataclasses.replace(task, prompts=prompts, teacher=teacher)


def model_arguments(
    settings: FinetuneSettings, task: EmbeddingTask, train: EncodedExamples
) -> dict[str, Any]:
    """Returns the arguments of the model that the settings determine."""
    arguments: dict[str, Any] = {"dimension": 0}
    if settings.pooling:
        arguments["pooling"] = settings.pooling
    if settings.projection_size:
        arguments["projection_size"] = settings.projection_size
    if settings.prompt:
        arguments["prompts"] = dict(task.prompts)
    if task.teacher and not settings.projection_size:
        arguments["projection_size"] = train.targets[features.LABELS].shape[1]
    return arguments


def make_objective(
    settings: FinetuneSettings, form: str, train: EncodedExamples, model: Any
) -> tuple[objectives.EmbeddingObjective, tuple[int, ...]]:
    """Returns the objective, and the layers whose vectors it takes; () for the last.

    Raises `UsageError` if a dimension or layer does not exist, a batch has no
    negatives, or a score is out of range.
    """
    labels = train.targets.get(features.LABELS)
    if settings.teacher_vectors:
        objective = objectives.Distill(settings.teacher_loss)
    elif form == SCORES and settings.score_loss == "mse":
        worst = float(labels[np.argmax(np.abs(labels))])
        need = "score_loss: mse is for scores from -1 to 1, cosent for any; highest"
        require(abs(worst) <= 1, need, worst)
        objective = objectives.CosineMse()
    elif form == SCORES:
        objective = objectives.CoSent(settings.similarity_scale)
    else:
        alone = settings.train_batch_size == 1
        alone = alone and int(np.diff(train.unit_splits).max()) < 3
        need = "train_batch_size: one pair has no negatives, expected at least 2"
        require(not alone, need, settings.train_batch_size)
        directions = "both" if settings.both_directions else "one"
        objective = objectives.Contrastive(settings.similarity_scale, directions)
    size, last = model.vector_size, model.config.num_hidden_layers
    if dims := _numbers("embedding_dims", settings.embedding_dims, size):
        objective = objectives.Matryoshka(objective, (*sorted({*dims, size}),))
    layers = _numbers("embedding_layers", settings.embedding_layers, last)
    if layers:
        layers = (*sorted({*layers, last}),)
        objective = objectives.AdaptiveLayer(objective, layers)
    return objective, layers


def _numbers(name: str, values: Sequence[str], most: int) -> tuple[int, ...]:
    """Returns the numbers in a setting, from 1 to `most`."""
    for value in values:
        fits = value.isdecimal() and 1 <= int(value) <= most
        require(fits, f"{name}: expected numbers from 1 to {most}", value)
    return tuple(map(int, values))
