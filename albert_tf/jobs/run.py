"""Runs a job here or in processes; a worker loads its resources once.

A worker gets its share through a pipe, and returns the result through it. The result
does not depend on the worker. `jobs.beam` does the same on a cluster.

`concurrent.futures` lacks one property: when a worker dies, the others continue.
"""

import collections
import contextlib
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, Protocol

from albert_tf.errors import DataError, UsageError

# A job is abandoned after this many workers have died during it.
_ATTEMPTS = 2
OnRows = Callable[[int], None]
Done = Callable[[Any, Any], None]


class Job(NamedTuple):
    """A part to be computed. Other jobs need no more than `str(job)`, for messages.

    Attributes:
        first: int. Index of its first row.
    """

    index: int
    first: int
    rows: Any
    digest: str

    def __str__(self) -> str:
        return f"the rows {self.first + 1:,} to {self.first + len(self.rows):,}"


class Work(Protocol):
    """The work to be done; its pickle must be small.

    A worker that dies while starting, as in a script without `if __name__ ==
    "__main__":`, would leave a large pickle in a full pipe, and the parent waiting.
    """

    def open(self, num_threads: int) -> Callable[[Any, OnRows], Any]:
        """Loads what all jobs need; returns a function that computes one.

        It reports numbers of rows meanwhile. `num_threads` calls of a model run at a
        time.
        """


@contextlib.contextmanager
def open_runner(
    work: Work,
    num_workers: int,
    num_threads: int = 1,
    on_rows: OnRows = lambda rows: None,
    flag: str = "num_workers",
) -> Iterator[Callable[[Iterable, Done], None]]:
    """Opens a runner of jobs; with several workers they are finished in any order.

    Yields a function of jobs, which are read as needed, and `done`, which is called
    with every job and its result. It raises a `DataError` if the input cannot be used,
    or a worker died during the same job again; current jobs are finished before.
    `on_rows` is called with numbers of rows; negative if work was lost.
    """
    if num_workers > 1:
        with _Pool(work, num_workers, num_threads, on_rows, flag) as pool:
            yield pool.run
        return
    opened: list[Callable] = []

    def run(jobs: Iterable, done: Done) -> None:
        for job in jobs:
            if not opened:
                opened.append(work.open(num_threads))
            done(job, opened[0](job, on_rows))

    yield run


class _Worker:
    """A process and its current job."""

    def __init__(self, work: Work, num_threads: int):
        self.pipe, theirs = multiprocessing.connection.Pipe()
        # Forking a process that runs TensorFlow's threads can hang.
        self.process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, work, num_threads), daemon=True
        )
        with _without_interrupts():
            self.process.start()
        theirs.close()
        self.job: Any = None
        self.counted = 0
        self._is_ready = False

    def give(self, job: Any) -> None:
        """Gives the process a job, which is sent when it is ready."""
        self.job, self.counted = job, 0
        if self._is_ready:
            self._send()

    def ready(self) -> None:
        """Called once the process is listening; sending earlier would block."""
        self._is_ready = True
        self._send()

    def _send(self) -> None:
        # If the process has died, the pipe is closed.
        with contextlib.suppress(OSError):
            self.pipe.send(self.job)

    def end(self, now: bool) -> None:
        if now:  # before its pipe is closed, which would make it write a traceback
            self.process.kill()
        self.pipe.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Starts processes that ignore Ctrl-C; this process receives it afterwards."""
    # A terminal sends it to all processes, and each worker would print a traceback.
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # If it were started with the first worker, it would unblock the signal for it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool:
    """Workers, at most one per job, that run at the same time."""

    def __init__(self, work, num_workers, num_threads, on_rows, flag):
        self._start = lambda: _Worker(work, num_threads)
        self._num_workers = num_workers
        self._on_rows = on_rows
        self._flag = flag
        self._workers: list[_Worker] = []
        self._waiting: collections.deque = collections.deque()
        self._deaths: collections.Counter[int] = collections.Counter()
        self._failure: Exception | None = None

    def run(self, jobs: Iterable, done: Done) -> None:
        jobs = iter(jobs)
        while True:
            self._hand_out(jobs)
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                break
            # A pipe is also ready when its process dies.
            ready = multiprocessing.connection.wait([one.pipe for one in busy])
            for worker in busy:
                if worker.pipe in ready:
                    self._receive(worker, done)
        if self._failure is not None:
            raise self._failure

    def _hand_out(self, jobs: Iterator) -> None:
        while self._failure is None:
            # One job is read in advance, so that no worker waits for it.
            if not self._waiting:
                self._read(jobs)
            idle = [worker for worker in self._workers if worker.job is None]
            is_full = not idle and len(self._workers) == self._num_workers
            if is_full or not self._waiting:
                return
            if not idle:
                idle = [self._start()]
                self._workers += idle
            idle[0].give(self._waiting.popleft())

    def _read(self, jobs: Iterator) -> None:
        try:
            self._waiting.extend([next(jobs)])
        except StopIteration:
            pass
        except (DataError, UsageError) as error:
            # Jobs that were read before are still finished.
            self._failure = error

    def _receive(self, worker: _Worker, done: Done) -> None:
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
        self._deaths.pop(id(job), None)
        if kind == "result":
            done(job, value)
        else:
            self._failure = self._failure or value

    def _lost(self, worker: _Worker) -> None:
        job = worker.job
        worker.end(now=True)
        self._workers.remove(worker)
        self._on_rows(-worker.counted)
        self._deaths[id(job)] += 1
        if self._deaths[id(job)] < _ATTEMPTS:
            self._waiting.appendleft(job)
            return
        self._failure = self._failure or DataError(
            f"{self._flag}: {_ATTEMPTS} workers died over {job} (exit code "
            f"{worker.process.exitcode}; out of memory? a script that calls this "
            'without `if __name__ == "__main__":`?); the same command, perhaps with '
            "fewer workers, continues after the finished parts"
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        for worker in self._workers:
            worker.end(now=kind is not None)


def _serve(pipe, work: Work, num_threads: int) -> None:
    """Computes jobs in a worker process until the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(("ready", None))
    compute = None
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):  # the parent has died, perhaps while it sent a job
            return
        try:
            compute = compute or work.open(num_threads)
            answer = ("result", compute(job, lambda rows: pipe.send(("rows", rows))))
        except (DataError, UsageError) as error:
            answer = ("error", error)
        except Exception:
            # A traceback cannot be pickled; without it, a bug cannot be found.
            answer = ("error", RuntimeError(f"in a worker:\n{traceback.format_exc()}"))
        pipe.send(answer)


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed; otherwise it would wait forever."""
    multiprocessing.parent_process().join()
    os._exit(1)
