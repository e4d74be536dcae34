"""The task of a fine-tuned model, as it is saved with the model.

A model carries `task`, a dict with the `name` of its task, the `metric` that selected
it, the `options` with which examples become rows, and for two labels the
`positive_label`. Models of other packages have no such dict; their head decides which
tasks they can answer.
"""

import dataclasses
from typing import Any

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.heads import CHOICES, HEADS, LABELS, TAGS, TO_VECTORS, VECTORS
from albert_tf.settings import checked
from albert_tf.tasks import multiple_choice, registry, squad, tagging
from albert_tf.tasks.embedding import EmbeddingTask, as_embedding, embedding_task
from albert_tf.tasks.labels import match_labels, sort_labels
from albert_tf.tasks.own_files import TABLE, OwnFileSettings
from albert_tf.tasks.task import SINGLE_LABEL, Options, Task
from albert_tf.tasks.text_classification import table_task


def describe(task: Task) -> dict[str, Any]:
    """Returns the record of a task that is saved with a model, ready for JSON."""
    options = dataclasses.asdict(task.options)
    del options["on_bad_input"]
    described = {"name": task.name, "metric": task.selecting_metric, "options": options}
    if task.positive_label is not None:
        described["positive_label"] = task.positive_label
    for name in ("written", "table"):
        if value := getattr(task, name):
            described[name] = dict(value)
    return described


def task_of(model: Any, head: str, problem_type: str | None, name: str = "") -> Task:
    """Returns the task that a model was fine-tuned on, or the named one.

    Raises `UsageError` if the task has another head, and `DataError` if the model's
    record of its task is damaged.
    """
    saved = getattr(model, "task", None) or {}
    try:
        name = name or str(saved.get("name", TABLE))
        # Each command decides how to handle bad input.
        options = {
            field.name: saved["options"][field.name]
            for field in dataclasses.fields(Options)
            if field.name in saved.get("options", {}) and field.name != "on_bad_input"
        }
        options = checked(options, Options)
        written = {str(k): str(v) for k, v in dict(saved.get("written", {})).items()}
        table = checked(dict(saved.get("table", {})), OwnFileSettings)
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"task: not a record of a task: {saved!r}") from None
    labels = tuple(getattr(model, "labels", None) or ())
    if name == TABLE:
        task = _own_task(head, labels, problem_type, saved.get("positive_label"))
        task = dataclasses.replace(task, written=written, table=table)
        labels = task.labels or labels
    else:
        task = registry.find_task(name)
        task = as_embedding(task) if head == "text_embedder" else task
        spans = HEADS[task.head].answers_spans and HEADS[head].answers_spans
        message = f"task: {task.name} needs a model with the head {task.head}"
        hint = f"; {TO_VECTORS}" if task.head == "text_embedder" else ""
        received = f"received one with {head}{hint}"
        require(task.head == head or spans, f"{message}, {received}")
        if task.labels:
            count = getattr(model, "num_labels", None)
            labels, note = match_labels(labels, task, num_labels=count)
            if note:
                logging.info("%s", note)
    if isinstance(task, EmbeddingTask):
        prompts = getattr(model, "prompts", None) or {}
        task = dataclasses.replace(task, prompts=prompts)
    longest = model.config.max_position_embeddings
    length = options.get("max_seq_length") or getattr(model, "max_seq_length", None)
    options["max_seq_length"] = min(length or longest, longest)
    return dataclasses.replace(
        task,
        head=head,
        labels=labels,
        problem_type=problem_type,
        options=dataclasses.replace(task.options, **options),
    )


def may_lack_answers(task: Task) -> bool:
    """Returns whether a task has questions without an answer (SQuAD 2.0)."""
    sources = task.splits.values()
    return any(getattr(source, "unanswerable", False) for source in sources)


def _own_task(
    head: str, labels: tuple[str, ...], problem_type: str | None, positive: Any
) -> Task:
    """Returns the task of a table, or the closest one to a model's head."""
    kind = HEADS[head].answers if head else VECTORS
    if kind == LABELS:
        task = table_task(labels, problem_type=problem_type or SINGLE_LABEL)
        if task.positive_label is None:
            return task
        # F1 refers to the same label as in training; for models of other packages to
        # the last of the sorted labels, as for a new table.
        positive = positive if positive in labels else sort_labels(labels)[-1]
        return dataclasses.replace(task, positive_label=positive)
    if kind == TAGS:
        return tagging.tagging_task(TABLE, labels)
    if head and kind == VECTORS:
        return embedding_task(TABLE)
    if kind == CHOICES:
        return multiple_choice.choice_task(TABLE)
    candidates = [task for task in squad.TASKS if task.head == head]
    message = "model: expected a model that was fine-tuned, received one with the head"
    require(candidates, f"{message} {head or 'none'}")
    return candidates[0]
