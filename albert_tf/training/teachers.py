"""The teacher of a fine-tuning run, whose outputs become targets of the student.

The examples do not change from epoch to epoch, and a teacher has no dropout, so its
outputs are computed once, before training. They are kept in a file if the user names
one: in parts at first, so that a run that is killed continues after the last of them.

Legend: `N` examples, `U` units, `R` rows, `P` words, `K` choices, `C` labels
"""

import dataclasses
import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.converters.detect import check_path
from albert_tf.errors import DataError, require
from albert_tf.heads import CHOICES, HEADS, LABELS, SPANS, VECTORS
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import environment, model_digest, rows_digest
from albert_tf.inference.predictor import Predictor, find_task
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.storage import files
from albert_tf.tasks import own_files
from albert_tf.tasks.labels import match_labels
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, EncodedExamples, Task
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.finetune_settings import FinetuneSettings

# Examples whose outputs are computed, and stored, together.
_PART = 4096
_MASKED = -1e30  # a choice that does not exist
_RECORD = "record"  # key of the file, besides the outputs
Outputs = dict[str, np.ndarray]


def find_teacher(settings: FinetuneSettings) -> Task | None:
    """Returns the teacher's task; None without one, or if only its vectors teach."""
    if not settings.teacher:
        return None
    if settings.cache_teacher:
        files.check_new("cache_teacher", settings.cache_teacher, overwrite=True)
    if settings.table_kind == own_files.VECTORS:
        check_path(settings.teacher)
        return None
    return find_task(settings.teacher)


def check_teacher(settings: FinetuneSettings, teacher: Task, task: Task) -> None:
    """Raises an error if a teacher's outputs cannot be the targets of a task."""
    path, temperature = settings.teacher, settings.teacher_temperature
    own, others = HEADS[task.head].answers, HEADS[teacher.head].answers
    hint = "; --table_kind=vectors trains vectors" * (others == VECTORS)
    need = f"teacher: {path} must have the head of the task, {task.head}{hint}"
    require(own == others and own != VECTORS, need, teacher.head)
    span = "question_answering"
    need = f"teacher: {path}: only the head {span} gives a logit for each token, of "
    need += "teacher and student (--answer_head=span)"
    heads = [one.head for one in (task, teacher) if one.head != span]
    require(own != SPANS or not heads, need, *heads)
    kinds = task.problem_type, teacher.problem_type
    need = f"teacher: {path} must be for {kinds[0]}, as the task {task.name} is"
    require(own != LABELS or kinds[0] == kinds[1], need, kinds[1])
    is_usual = temperature == settings.defaults()["teacher_temperature"]
    need = "teacher_temperature: without effect on scores; leave it out"
    require(kinds[0] != REGRESSION or is_usual, need, temperature)
    _order(path, teacher, task)


def _order(path: str, teacher: Task, task: Task) -> list[int] | slice:
    """Returns the teacher's indices of the task's labels."""
    if not task.labels:
        return slice(None)
    about = {"num_labels": len(teacher.labels), "model_name": f"teacher: {path}"}
    labels, _ = match_labels(teacher.labels, task, **about)
    return [labels.index(label) for label in task.labels]


def taught(
    settings: FinetuneSettings,
    task: Task,
    examples: Any,
    encoded: EncodedExamples,
    tokenizer: Tokenizer,
) -> EncodedExamples:
    """Returns encoded examples with the teacher's outputs as targets.

    Examples without labels get the teacher's answers as labels. Raises `UsageError` if
    the teacher or the file of its outputs is another one, or the teacher reads other
    tokens where logits belong to tokens.
    """
    outputs = _outputs(settings, task, examples, tokenizer)
    targets, kind = dict(encoded.targets), HEADS[task.head].answers
    if kind == VECTORS:
        targets[features.LABELS] = outputs["logits"]
        return dataclasses.replace(encoded, targets=targets)
    if kind == SPANS:
        logits = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    elif kind == CHOICES:
        counts = np.diff(encoded.unit_splits)
        exists = np.arange(counts.max()) < counts[:, None]
        logits = np.full(exists.shape, _MASKED, np.float32)
        logits[exists] = outputs["logits"]
    else:
        order = _order(settings.teacher, find_task(settings.teacher), task)
        logits = outputs["logits"][:, order]
    targets[features.TEACHER_LOGITS] = logits
    if features.LABELS not in targets and kind != SPANS:
        targets[features.LABELS] = _answers(task, logits)
    return dataclasses.replace(encoded, targets=targets)


def _answers(task: Task, logits: np.ndarray) -> np.ndarray:
    """Returns the labels that a teacher's logits stand for."""
    if task.problem_type == REGRESSION:
        return logits[:, 0]
    if task.problem_type == MULTI_LABEL:
        return (logits > 0).astype(np.float32)
    return logits.argmax(-1).astype(np.int32)


def _outputs(
    settings: FinetuneSettings, task: Task, examples: Any, tokenizer: Tokenizer
) -> Outputs:
    """Returns the teacher's outputs for all examples, from the file if there is one."""
    by_token = HEADS[task.head].answers == SPANS
    if not by_token:
        examples = dataclasses.replace(examples, labels=None)
    starts = range(0, len(examples), _PART)
    parts = [examples.select(range(i, min(i + _PART, len(examples)))) for i in starts]
    load = functools.cache(lambda: _load(settings, task, tokenizer))
    if not settings.cache_teacher:
        return _joined(map(load(), parts))
    record = {"teacher": model_digest(settings.teacher)}
    digests = list(map(rows_digest, parts))
    record["set of examples"] = hashlib.sha256("".join(digests).encode()).hexdigest()
    if by_token:
        record["set of options"] = dataclasses.asdict(task.options)
        record["tokenizer"] = {"sha256": tokenizer.sha256, **tokenizer.get_config()}
    path = settings.cache_teacher
    if files.exists(path):
        before, outputs = _read(path)
        differ = [name for name in record if before.get(name) != record[name]]
        need = f"cache_teacher: {path} holds outputs for another {', '.join(differ)}; "
        need += "give another name, or --overwrite"
        require(not differ or settings.overwrite, need)
        if not differ:
            return outputs
    place = Workplace(f"{path}.parts", {**environment(), **record}, "cache_teacher")
    with place.open([], settings.overwrite):
        for index, (part, digest) in enumerate(zip(parts, digests, strict=True)):
            if not place.find(index, digest):
                place.write(index, digest, Part(_packed(load()(part)), {}))
        outputs = _joined(_unpacked(x.content) for x in place.parts(len(parts)))
        text = np.frombuffer(json.dumps(record).encode(), np.uint8)
        files.write_bytes(path, _packed({**outputs, _RECORD: text}))
        place.remove()
    return outputs


def _load(
    settings: FinetuneSettings, task: Task, tokenizer: Tokenizer
) -> Callable[[Any], Outputs]:
    """Loads the teacher; returns a function that computes its outputs."""
    path, kind = settings.teacher, HEADS[task.head].answers
    logging.info("teacher: computing the outputs of %s", path)
    if kind == VECTORS:
        embed = Embedder.from_pretrained(path)
        return lambda part: {"logits": embed([text for (text,) in part.texts])}
    if kind != SPANS:
        model = Predictor.from_pretrained(path)
        return lambda part: model.outputs(model.encoded(part))
    # Logits of tokens belong to the student's rows, all others to the texts.
    length = task.options.max_seq_length
    longest = AlbertConfig.from_pretrained(path).max_position_embeddings
    need = f"max_seq_length must be at most {longest}, the longest row of the teacher "
    require(length <= longest, f"{need}{path}", length)
    model = Predictor.from_pretrained(path, max_seq_length=length)
    own, other = (
        (x.sha256, x.get_config(), x.pair_separators)
        for x in (tokenizer, model.tokenizer)
    )
    need = f"teacher: {path} must have the student's tokenizer and segments, because "
    require(own == other, f"{need}the logits of questions belong to tokens")
    return lambda part: model.outputs(task.encode(part, tokenizer))


def _joined(parts: Iterable[Outputs]) -> Outputs:
    parts = list(parts)
    return {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpacked(content: bytes) -> Outputs:
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


def _read(path: str) -> tuple[dict[str, Any], Outputs]:
    """Returns the record and the outputs in a file."""
    try:
        outputs = _unpacked(files.read_bytes(path))
        return dict(json.loads(outputs.pop(_RECORD).tobytes())), outputs
    except (ValueError, KeyError, OSError, EOFError, TypeError, zipfile.BadZipFile):
        need = f"cache_teacher: {path} must be the outputs of a teacher; it is damaged "
        raise DataError(f"{need}or another file") from None
