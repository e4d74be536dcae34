"""Computes parts in this process or in workers, each of which loads the model once.

A worker gets rows and returns a part through a pipe; it needs no files but the model's.
Who computes a part makes no difference to it: every call of the model runs in one
thread, and which rows are in a call depends on the part alone.
"""

import collections
import contextlib
import multiprocessing.connection
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.bulk.parts import Part
from albert_tf.storage import processes

# A part is given up once this many workers have died over it.
_ATTEMPTS = 2
OnRows = Callable[[int], None]


class Job(NamedTuple):
    """A part to be computed.

    Attributes:
        number: int. Index of the part.
        first: int. Index of its first row.
        rows: Its rows.
        digest: str. Digest of them.
    """

    number: int
    first: int
    rows: Any
    digest: str


class Work(Protocol):
    """What is to be done; can be pickled."""

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        """Loads the model.

        Args:
            num_threads: int. Calls of the model at a time.

        Returns:
            callable. Computes a part, and reports the number of rows after every batch.
        """


def run_jobs(
    work: Work,
    jobs: Iterator[Job],
    num_workers: int,
    num_threads: int,
    on_rows: OnRows,
    done: Callable[[Job, Part], None],
) -> None:
    """Computes parts; with several workers they are finished in any order.

    Args:
        work: `Work`.
        jobs: iterator of `Job`. Read as needed.
        num_workers: int. 1 for this process alone.
        num_threads: int. Of each worker.
        on_rows: callable. Called with numbers of rows; negative if work was lost.
        done: callable. Called with every job and its part.

    Raises:
        DataError: If the input cannot be used, or a worker died over the same part
            again. All parts that were being computed are finished before.
    """
    if num_workers > 1:
        with _Pool(work, num_workers, num_threads, on_rows, done) as pool:
            pool.run(jobs)
        return
    compute = None
    for job in jobs:
        compute = compute or work.open(num_threads)
        done(job, compute(job, on_rows))


class _Worker:
    """A process, and what it is doing."""

    def __init__(self, work: Work, num_threads: int):
        self.pipe, theirs = multiprocessing.connection.Pipe()
        self.process = processes.context().Process(
            target=_serve, args=(theirs, work, num_threads), daemon=True
        )
        with processes.without_interrupts():
            self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.counted = 0
        self._is_ready = False

    def give(self, job: Job) -> None:
        """Gives it a job, which is sent when it is ready."""
        self.job, self.counted = job, 0
        if self._is_ready:
            self._send()

    def ready(self) -> None:
        """Called once the process is listening; sending earlier would block."""
        self._is_ready = True
        self._send()

    def _send(self) -> None:
        # If it has died, its pipe is at its end.
        with contextlib.suppress(OSError):
            self.pipe.send(self.job)

    def end(self, now: bool) -> None:
        self.pipe.close()
        if now:
            self.process.kill()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Pool:
    """Workers, no more than there are jobs; all of them start at the same time."""

    def __init__(self, work, num_workers, num_threads, on_rows, done):
        self._start = lambda: _Worker(work, num_threads)
        self._num_workers = num_workers
        self._on_rows = on_rows
        self._done = done
        self._workers: list[_Worker] = []
        self._again: collections.deque[Job] = collections.deque()
        self._deaths: collections.Counter[int] = collections.Counter()
        self._failure: Exception | None = None

    def run(self, jobs: Iterator[Job]) -> None:
        while True:
            self._hand_out(jobs)
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                break
            # A pipe is at its end, too, when its process dies.
            ready = multiprocessing.connection.wait([one.pipe for one in busy])
            for worker in busy:
                if worker.pipe in ready:
                    self._receive(worker)
        if self._failure is not None:
            raise self._failure

    def _hand_out(self, jobs: Iterator[Job]) -> None:
        while self._failure is None:
            idle = [worker for worker in self._workers if worker.job is None]
            if not idle and len(self._workers) == self._num_workers:
                return
            job = self._again.popleft() if self._again else self._next(jobs)
            if job is None:
                return
            if not idle:
                idle = [self._start()]
                self._workers += idle
            idle[0].give(job)

    def _next(self, jobs: Iterator[Job]) -> Job | None:
        try:
            return next(jobs, None)
        except (DataError, UsageError) as error:
            # What was read before is still answered and kept.
            self._failure = error
            return None

    def _receive(self, worker: _Worker) -> None:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError):
            self._lost(worker)
            return
        if kind == "ready":
            worker.ready()
            return
        if kind == "rows":
            worker.counted += value
            self._on_rows(value)
            return
        job, worker.job = worker.job, None
        if kind == "part":
            self._done(job, value)
        else:
            self._failure = self._failure or value

    def _lost(self, worker: _Worker) -> None:
        job = worker.job
        worker.end(now=True)
        self._workers.remove(worker)
        self._on_rows(-worker.counted)
        self._deaths[job.number] += 1
        if self._deaths[job.number] < _ATTEMPTS:
            self._again.append(job)
            return
        first, last = job.first + 1, job.first + len(job.rows)
        self._failure = self._failure or DataError(
            f"num_workers: {_ATTEMPTS} workers died over the rows {first:,} to "
            f"{last:,} (exit code {worker.process.exitcode}; out of memory?); the same "
            "command, perhaps with fewer workers, continues after the finished parts"
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        for worker in self._workers:
            worker.end(now=kind is not None)


def _serve(pipe, work: Work, num_threads: int) -> None:
    """Computes parts in a worker process until the pipe is closed."""
    processes.end_with_parent()
    pipe.send(("ready", None))
    compute = None
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            compute = compute or work.open(num_threads)
            answer = ("part", compute(job, lambda rows: pipe.send(("rows", rows))))
        except (DataError, UsageError) as error:
            answer = ("error", error)
        except Exception:
            # A traceback cannot be pickled; without it, a bug cannot be found.
            answer = ("error", RuntimeError(f"in a worker:\n{traceback.format_exc()}"))
        pipe.send(answer)
