"""Answers a file of any size: reads it in parts, computes them, joins the answers.

Of the input, a few parts are in memory at a time. A finished part is kept next to the
output until the output is complete, and the same command continues after it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tqdm
from absl import logging

from albert_tf.inference.bulk import formats
from albert_tf.inference.bulk.settings import BulkSettings
from albert_tf.jobs.folder import Part, Workplace
from albert_tf.jobs.run import Job, Work, open_runner
from albert_tf.storage import files
from albert_tf.tasks.text_tables import Portions, TextTable
from albert_tf.wording import count_of


class Summary(NamedTuple):
    """What a run did.

    Attributes:
        rows: int. Rows of the output.
        resumed: int. How many of them an earlier run had answered.
        seconds: float. From the start of the first part to the end of the last.
        cores: int. Cores that computed.
    """

    rows: int
    resumed: int
    seconds: float
    cores: int

    def text(self) -> str:
        """Returns the summary in words."""
        new = self.rows - self.resumed
        rate = new / max(self.seconds, 1e-9)
        words = (
            f"{count_of(new, 'text')} in {self.seconds:,.1f} s, {rate:,.1f} texts/s, "
            f"{rate / self.cores:,.1f} per core ({count_of(self.cores, 'core')})"
        )
        if self.resumed:
            words += f"; {self.resumed:,} others were answered before"
        return words


def answer_file(
    work: Work,
    source: Portions,
    output_file: str,
    write: Callable[[str, formats.Parts], None],
    settings: Mapping[str, Any],
    bulk: BulkSettings,
    overwrite: bool = False,
) -> Summary:
    """Answers all rows of a source.

    Args:
        work: `Work`.
        source: `Portions`.
        output_file: str. The file to write.
        write: callable. Joins all parts to the file, atomically.
        settings: dict. What determines the answers but the rows, ready for JSON.
        bulk: `BulkSettings`.
        overwrite: bool. Whether an output, or parts of another run, may be replaced.

    Raises:
        UsageError: If the output exists and `overwrite` is not set.
        DataError: If a row cannot be used; finished parts are kept.
    """
    sizes = {n: getattr(bulk, n) for n in ("rows_per_part", "max_batch_tokens")}
    place = Workplace(f"{output_file}.parts", {**settings, **sizes})
    existing = [output_file] * files.exists(output_file)
    progress = _Progress(source)

    def jobs() -> Iterator[Job]:
        first = 0
        for number, rows in enumerate(source.portions(bulk.rows_per_part)):
            job = Job(number, first, rows, _digest(rows))
            progress.read(len(rows))
            first += len(rows)
            if place.find(number, job.digest):
                progress.skip(len(rows))
            else:
                yield job

    def done(job: Job, part: Part) -> None:
        place.write(job.index, job.digest, part)

    sizes = bulk.num_workers, bulk.threads_per_worker
    with place.open(existing, overwrite):
        with progress, open_runner(work, *sizes, progress.update) as run:
            run(jobs(), done)
        write(output_file, lambda: place.parts(progress.parts))
        place.remove()
    return Summary(progress.rows, progress.resumed, progress.seconds, bulk.cores)


class _Progress:
    """Counts rows and shows a bar with the rate and the time left on a terminal."""

    def __init__(self, source: Portions):
        self._source = source
        self._bar = tqdm.tqdm(unit="text", desc="texts", disable=None)
        self._start: float | None = None
        self.rows = self.resumed = self.parts = 0
        self.seconds = 0.0

    def read(self, rows: int) -> None:
        """Counts rows that were read, and estimates how many there will be."""
        self._start = self._start or time.perf_counter()
        self.parts += 1
        self.rows += rows
        fraction = self._source.fraction()
        if fraction:
            self._bar.total = round(self.rows / fraction)

    def skip(self, rows: int) -> None:
        """Counts rows that an earlier run answered."""
        self.resumed += rows
        if not self._bar.disable:
            self._bar.initial += rows  # do not count for the rate
        self._bar.update(rows)

    def update(self, rows: int) -> None:
        """Counts rows that were answered."""
        self._bar.update(rows)

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        self._bar.close()
        self.seconds = time.perf_counter() - (self._start or time.perf_counter())


def report(output_file: str, noun: str, summary: Summary) -> None:
    """Logs the last line of a command."""
    logging.info(
        "%s: %s: %s", output_file, count_of(summary.rows, noun), summary.text()
    )


def _digest(rows: TextTable) -> str:
    content = [rows.texts, rows.text_pairs, rows.labels, rows.ids]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
