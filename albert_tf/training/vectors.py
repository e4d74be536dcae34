"""Settings of vectors: the model, the task and the objective that they describe."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import require
from albert_tf.heads import PASSAGE, QUERY
from albert_tf.inference.files import TextsDigest
from albert_tf.inference.formats import record_of
from albert_tf.storage import files
from albert_tf.tasks.embedding import EmbeddingTask, load_vectors
from albert_tf.tasks.embedding_files import SCORES, TEXTS, TUPLES
from albert_tf.tasks.task import EncodedExamples, Task
from albert_tf.training.finetune_settings import FinetuneSettings

# Settings that only vectors have.
_NAMES = (
    "embedding_pooling",
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
        need = f"prompt: expected one of {QUERY}, {PASSAGE}, once, and its text after ="
        fits = is_text and role in ("", QUERY, PASSAGE) and role not in prompts
        require(fits, need, item)
        prompts[role] = text
    form, teacher = train.form, settings.teacher_vectors
    taught = bool(teacher or settings.teacher)
    need = "prompt: query and passage are for pairs; =TEXT is put before every text"
    require(form == TUPLES or not {*prompts} - {""}, need, *settings.prompt)
    need = "dev_fraction: texts alone have nothing to measure; give a dev_file of pairs"
    require(form != TEXTS or not settings.dev_fraction, need, settings.dev_fraction)
    for names, fits in (
        (("score_loss",), form == SCORES),
        (("both_directions",), form == TUPLES),
        (("teacher_loss",), taught),
        (("label_smoothing", "labels", "class_weights"), False),
        (("teacher_weight", "teacher_temperature"), False),
    ):
        for name in names:
            need = f"{name}: without effect on {form}; leave it out"
            require(fits or getattr(settings, name) == usual[name], need)
    name = "teacher" if settings.teacher else "teacher_vectors"
    need = f"{name}: only for texts alone, without positives or scores"
    require(not taught or form == TEXTS, need, form)
    if teacher:
        rows = len(load_vectors(teacher))
        need = f"teacher_vectors: {teacher} has {rows:,} vectors, {train.path} has "
        require(rows == len(train), f"{need}{len(train):,} rows")
        beside, digest = record_of(teacher), TextsDigest()
        digest.add(text for (text,) in train.texts)
        made = files.read_json(beside).get("texts") if files.exists(beside) else None
        need = f"teacher_vectors: {beside} says that they are of other texts than "
        need += f"{train.path}; without that file, rows are matched by their numbers"
        require(made in (None, digest.value()), need)
    # Rows of the file and of the vectors are compared by their numbers.
    need = "teacher_vectors: not with id_column or on_bad_input=skip"
    plain = not settings.id_column and settings.on_bad_input == "stop"
    require(not teacher or plain, need)
    return dataclasses.replace(task, prompts=prompts, teacher=teacher, taught=taught)


def without_teacher(task: Task) -> Task:
    """Returns a task whose texts have no teacher."""
    taught = isinstance(task, EmbeddingTask) and task.taught
    return dataclasses.replace(task, teacher="", taught=False) if taught else task


def with_prompts(task: Task, stored: Mapping[str, Any]) -> Task:
    """Gives a task an embedder's stored prompts, unless the settings have some."""
    if not isinstance(task, EmbeddingTask) or task.prompts:
        return task
    return dataclasses.replace(task, prompts=stored.get("prompts") or {})


def model_arguments(
    settings: FinetuneSettings,
    task: EmbeddingTask,
    train: EncodedExamples,
    width: int,
    kept: int | None,
) -> dict[str, Any]:
    """Returns the arguments of the model that the settings determine.

    A model of another `width` than the teacher's vectors is projected. Raises
    `UsageError` if its checkpoint has a projection, which is kept, to another size.
    """
    arguments: dict[str, Any] = {}
    if settings.embedding_pooling:
        arguments["pooling"] = settings.embedding_pooling
    arguments["prompts"] = dict(task.prompts)
    size = settings.projection_size
    if task.taught and not size:
        size = train.targets[features.LABELS].shape[1]
        size = 0 if size == (kept or width) else size
    need = f"projection_size: the model projects its vectors to {kept} numbers; "
    need += "convert_checkpoint --head=none writes the encoder without its projection"
    require(not size or (kept or size) == size, need, size)
    return arguments | ({"projection_size": size} if size else {})


def make_objective(
    settings: FinetuneSettings, form: str, train: EncodedExamples, model: Any
) -> tuple[Any, tuple[int, ...]]:
    """Returns the objective, and the layers whose vectors it takes; () for the last.

    Raises `UsageError` if a dimension or layer does not exist, a batch has no
    negatives, or a score is out of range.
    """
    # Keras is imported only after the checks that do not need it.
    from albert_tf.objectives import embedding as objectives

    labels = train.targets.get(features.LABELS)
    if settings.teacher_vectors or settings.teacher:
        size, need = labels.shape[1], "projection_size: the teacher's vectors have"
        fits = model.vector_size == size
        require(fits, f"{need} {size} numbers", model.vector_size)
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
