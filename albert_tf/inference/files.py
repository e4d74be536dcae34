"""Answers files of any size: reads parts, computes their answers, and joins them.

Only a few parts of the input are in memory at a time. A finished part is stored next to
the output until the output is complete, and the same command continues after it. Every
call of a model runs in one thread, and the rows in a call depend on the part alone, so
the output does not depend on the processes that compute the parts.
"""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tqdm
from absl import logging

from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.growing import first_layers
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.environment import ONEDNN, versions
from albert_tf.errors import count_of, require
from albert_tf.heads import LABELS, VECTORS
from albert_tf.inference import formats
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.forward import MAX_BATCH_TOKENS, use_one_thread_per_call
from albert_tf.inference.predictor import Loadable, Predictor
from albert_tf.inference.settings import BulkSettings
from albert_tf.jobs.folder import Part, Workplace, check_output
from albert_tf.jobs.run import Job, OnRows, Work, open_runner
from albert_tf.storage import files
from albert_tf.tasks.task import Portions, without_places

_PACKAGES = ("albert_tf", "keras", "tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowWork:
    """Computes the answers to rows of a file; see `run.Work`.

    Attributes:
        max_seq_length: int or None. Longer texts are cut; see `Predictor`.
        layers: int or None. Number of layers to compute, the first ones; None for all.
    """

    answers: ClassVar[str]
    model: str
    output_file: str
    max_seq_length: int | None = None
    batch_size: int = 32
    max_batch_tokens: int = MAX_BATCH_TOKENS
    named: bool = False
    layers: int | None = None

    def load(self, kind: type[Loadable], num_threads: int, **options) -> Any:
        """Returns a `Predictor` or an `Embedder`."""
        use_one_thread_per_call(num_threads)
        names = ("max_seq_length", "batch_size", "max_batch_tokens", "layers")
        options |= {name: getattr(self, name) for name in names}
        loaded = kind.from_pretrained(self.model, num_threads=num_threads, **options)
        loaded.tokenizer.num_threads = num_threads
        return loaded

    @property
    def output(self) -> formats.Output:
        """The file to write."""
        return formats.Output(self.output_file, self.answers, self.named)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictWork(RowWork):
    """Predictions of a fine-tuned model.

    Attributes:
        task: str. Name of a task other than the model's; may be empty.
        exit: str or None. Rule by which the model stops early; see `ExitRule`.
    """

    answers: str = LABELS
    task: str = ""
    exit: str | None = None

    def __post_init__(self):
        fits = self.exit is None or self.answers == LABELS
        require(fits, f"exit: only text classifiers, received {self.model}")

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        predictor = self.load(Predictor, num_threads, task=self.task, exit=self.exit)
        # With other heads, an example has several rows, or shares a row.
        is_row = self.answers == LABELS

        def compute(job: Job, on_rows: OnRows) -> Part:
            on_batch = on_rows if is_row else lambda rows: None
            answers_of = predictor.answers(job.rows, on_batch=on_batch)
            if not is_row:
                on_rows(len(job.rows))
            return formats.predictions(self.output, predictor.task, job, answers_of)

        return compute


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedWork(RowWork):
    """Vectors of texts."""

    answers: ClassVar[str] = VECTORS
    layer: int = -1
    pooling: str | None = None
    role: str = ""
    dimension: int | None = None

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        embedder = self.load(Embedder, num_threads)

        def compute(job: Job, on_rows: OnRows) -> Part:
            vectors = embedder(
                job.rows.texts,
                self.layer,
                self.pooling,
                on_rows,
                role=self.role,
                dimension=self.dimension,
            )
            return formats.vectors(self.output, job, vectors)

        return compute


def answer_rows(
    work: PredictWork | EmbedWork,
    open_source: Callable[[], Portions],
    settings: Mapping[str, Any] | None = None,
    bulk: BulkSettings | None = None,
    overwrite: bool = False,
) -> "Progress":
    """Writes the answers of a model folder to rows of any number.

    `open_source` is called after the immediate checks. `settings` determine the
    examples, ready for JSON. Raises `UsageError` if something is in the way of the
    output, or the model has no such answers, and `DataError` if a row cannot be used.
    """
    bulk = bulk or BulkSettings()
    bulk.check_runner()
    work = dataclasses.replace(work, max_batch_tokens=bulk.max_batch_tokens)
    output = work.output
    output.check()
    check_output(f"{output.path}.parts", output.existing(), overwrite)
    source = open_source()
    digest = model_digest(work.model, work.layers)
    recorded = dataclasses.asdict(work) | {"model": digest}
    del recorded["output_file"]
    recorded |= {"command": type(work).__name__, **(settings or {})}
    beside, texts = formats.record_of(output.path), TextsDigest()
    if output.ending == "npy":
        source = dataclasses.replace(source, portions=texts.of(source.portions))
        if overwrite and files.exists(beside):
            files.remove(beside)
    progress = answer_file(work, source, output, recorded, bulk, overwrite)
    if output.ending == "npy":
        record = {name: recorded[name] for name in formats.RECORDED}
        record["texts"] = texts.value()
        files.write_text(beside, files.to_json(record))
    return progress


class TextsDigest:
    """A digest of texts, whatever the portions in which they are read."""

    def __init__(self):
        self._sha256 = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        """Adds texts."""
        for text in texts:
            self._sha256.update(text.encode("utf-8", "surrogatepass") + b"\0")

    def of(self, portions: Callable) -> Callable:
        """Returns portions whose texts are added when they are read."""

        def added(size: int | None) -> Iterator[Any]:
            for part in portions(size):
                self.add(part.texts)
                yield part

        return added

    def value(self) -> str:
        """Returns the digest."""
        return self._sha256.hexdigest()


def answer_file(
    work: Work,
    source: Portions,
    output: formats.Output,
    settings: Mapping[str, Any],
    bulk: BulkSettings,
    overwrite: bool = False,
) -> "Progress":
    """Answers all rows of a source.

    `settings` determine the answers, except for the rows, and are ready for JSON. If a
    row cannot be used, finished parts are preserved.
    """
    use_one_thread_per_call(bulk.threads_per_worker)
    sizes = {n: getattr(bulk, n) for n in ("rows_per_part", "max_batch_tokens")}
    settings = {**environment(), **settings, **sizes}
    place = Workplace(f"{output.path}.parts", settings)
    progress = Progress(source, 0 if bulk.runner else bulk.cores)

    def jobs() -> Iterator[Job]:
        first = 0
        for index, rows in enumerate(source.portions(bulk.rows_per_part)):
            job = Job(index, first, rows, rows_digest(rows))
            progress.read(rows)
            first += len(rows)
            if place.find(index, job.digest):
                progress.skip(len(rows))
            else:
                yield job

    with place.open(output.existing(), overwrite):
        with progress:
            if bulk.runner:
                from albert_tf.jobs.beam import compute_parts

                compute_parts(work, place, jobs(), bulk.runner, bulk.beam_option)
            else:
                shares = bulk.num_workers, bulk.threads_per_worker
                with open_runner(work, *shares, progress.update) as run:
                    run(jobs(), lambda job, p: place.write(job.index, job.digest, p))
        place.claim(output.paths())
        progress.paths = output.write(lambda: place.parts(progress.parts))
        place.remove()
    return progress


class Progress:
    """Counts the rows of a run; a terminal shows a bar with the rate and time left.

    Args:
        cores: int. Number of cores that compute; 0 if Beam provides them.

    Attributes:
        empty: int. Rows that could not be read and have an empty answer.
        resumed: int. Number of rows that an earlier run had answered.
        seconds: float. From the start of the first part to the end of the last.
    """

    def __init__(self, source: Portions, cores: int):
        self._source = source
        self._cores = cores
        self._bar = tqdm.tqdm(unit="text", desc="texts", disable=None)
        self._start: float | None = None
        self.paths: list[str] = []
        self.parts = self.rows = self.resumed = self.empty = 0
        self.seconds, self._first = 0.0, ""

    def read(self, rows: Any) -> None:
        """Counts examples that were read, and estimates their total number."""
        self._start = self._start or time.perf_counter()
        self.parts += 1
        self.rows += len(rows)
        problems = list(filter(None, rows.problems or ()))
        self.empty += len(problems)
        self._first = self._first or "".join(problems[:1])
        if fraction := self._source.fraction():
            self._bar.total = round(self.rows / fraction)

    def skip(self, rows: int) -> None:
        """Counts rows that an earlier run answered."""
        self.resumed += rows
        if not self._bar.disable:
            self._bar.initial += rows  # excluded from the rate
        self._bar.update(rows)

    def update(self, rows: int) -> None:
        """Counts rows that were answered."""
        self._bar.update(rows)

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        self._bar.close()
        self.seconds = time.perf_counter() - (self._start or time.perf_counter())

    def text(self) -> str:
        """Describes the work done in words."""
        new = self.rows - self.resumed
        rate = new / max(self.seconds, 1e-9)
        words = f"{count_of(new, 'text')} in {self.seconds:,.1f} s, {rate:,.1f} texts/s"
        if self._cores:
            cores = count_of(self._cores, "core")
            words += f", {rate / self._cores:,.1f} per core ({cores})"
        if self.resumed:
            words += f"; {self.resumed:,} others were answered before"
        if self.empty:
            words += f"; {self.empty:,} of {self.rows:,} rows could not be read and"
            words += f" have an empty answer: first at {self._first}"
        return words

    def report(self, noun: str) -> None:
        """Logs the last line of a command."""
        rows = count_of(self.rows, noun)
        logging.info("%s: %s: %s", self.paths[0], rows, self.text())


def environment() -> dict[str, Any]:
    """Returns the versions in use, so that answers of different ones are not mixed."""
    import keras

    installed = versions(_PACKAGES)
    return {
        **{f"version of {name}": installed[name] for name in _PACKAGES},
        "keras_backend": keras.backend.backend(),
        # None is TensorFlow's own choice for the CPU.
        ONEDNN: os.environ.get(ONEDNN),
    }


def model_digest(path: str | os.PathLike, layers: int | None = None) -> str:
    """Returns a digest of the weights, the tokenizer and everything saved with them.

    `layers` is the number of layers that are used, None for all. Raises `UsageError` if
    the model does not have that many.
    """
    with open_checkpoint(path) as checkpoint:
        if layers is not None:
            checkpoint = first_layers(checkpoint, layers)
        tokenizer = choose_tokenizer(checkpoint, None, None, None)
        about = [
            checkpoint.config.to_dict(),
            checkpoint.head,
            checkpoint.labels,
            checkpoint.problem_type,
            checkpoint.max_seq_length,
            checkpoint.task,
            checkpoint.head_options,
            tokenizer.sha256,
            tokenizer.get_config(),
        ]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name in sorted(checkpoint.tensors):
            value = np.ascontiguousarray(checkpoint.tensors[name].read())
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(value.data)
    return digest.hexdigest()


def rows_digest(rows: Any) -> str:
    """Returns a digest of examples, which does not depend on their place."""
    text = json.dumps(rows, sort_keys=True, default=without_places)
    return hashlib.sha256(text.encode()).hexdigest()
