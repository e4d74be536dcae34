"""Processes blocks, in this process or in workers, and shows the progress."""

import concurrent.futures
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool

import tqdm

from albert_tf.data.corpus.corpus import Corpus, RawDocument
from albert_tf.data.prepare import parts
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, processes


class ProgressBar:
    """Shows progress in bytes of text and the rate in tokens."""

    def __init__(self, corpus: Corpus, show: bool):
        plain = all(
            source.size and not source.name.endswith((".gz", ".parquet"))
            for source in corpus.sources
        )
        total = sum(source.size for source in corpus.sources) if plain else None
        self._bar = tqdm.tqdm(
            total=total, unit="B", unit_scale=True, disable=not show, desc="text"
        )
        self._tokens = 0

    def update(self, num_bytes: int, num_tokens: int) -> None:
        self._tokens += num_tokens
        bar = self._bar
        if bar.total is not None:
            num_bytes = min(num_bytes, bar.total - bar.n)
        bar.update(num_bytes)
        elapsed = bar.format_dict["elapsed"] or 1e-9
        bar.set_postfix_str(f"{self._tokens / elapsed:,.0f} tokens/s", refresh=False)

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        if kind is None and self._bar.total is not None:
            self._bar.update(self._bar.total - self._bar.n)  # markup, white space
        self._bar.close()


class BlockPool:
    """Processes blocks here or in workers; only a few blocks wait at a time.

    Args:
        num_processes: int. 1 for no workers.
        tokenizer: Given to `parts.make_part`.
        config: `RecordConfig`. Given to `parts.make_part`.
        folder: str. Folder of the parts, which exists when the first block comes.
    """

    def __init__(
        self, num_processes: int, tokenizer, config: RecordConfig, folder: str
    ):
        if num_processes < 1:
            raise UsageError(
                f"num_processes: must be positive, received {num_processes}"
            )
        self._job = (tokenizer, config)
        self._waiting: deque = deque()
        self._limit = 2 * num_processes
        self._job_file = files.join(folder, "job.pickle")
        self._is_started = False
        self._pool = None
        if num_processes > 1:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                num_processes,
                mp_context=processes.context(),
                initializer=parts.initialize_worker,
                initargs=(self._job_file,),
            )

    def submit(
        self, block: list[RawDocument], path: str, done: Callable[[int, int], None]
    ) -> None:
        if self._pool is None:
            done(*parts.make_part(block, path, *self._job))
            return
        while len(self._waiting) >= self._limit:
            self._take(done)
        self._waiting.append(self._start(parts.work, block, path))

    def finish(self, done) -> None:
        while self._waiting:
            self._take(done)

    def each(
        self, function: Callable, items: Iterable, done: Callable[[], None]
    ) -> None:
        """Calls `function(item)` for all items, in any order; `done()` after each."""
        if self._pool is None:
            for item in items:
                function(item)
                done()
            return
        try:
            for job in [self._start(function, item) for item in items]:
                job.result()
                done()
        except BrokenProcessPool as error:
            raise _worker_lost() from error

    def _start(self, function: Callable, *arguments) -> concurrent.futures.Future:
        """Submits a job; the first one starts the workers."""
        if not self._is_started:
            # Pass the job through a file, not a pipe: if a worker dies while starting,
            # writing to its full pipe would block forever. The file is removed with
            # the parts, also if this run is killed and another one completes it.
            files.write_bytes(self._job_file, pickle.dumps(self._job))
            self._is_started = True
        try:
            with processes.without_interrupts():
                return self._pool.submit(function, *arguments)
        except BrokenProcessPool as error:
            raise _worker_lost() from error

    def _take(self, done) -> None:
        try:
            done(*self._waiting.popleft().result())
        except BrokenProcessPool as error:
            raise _worker_lost() from error

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)


def _worker_lost() -> DataError:
    return DataError(
        "num_processes: a worker process died (out of memory? a script that calls this "
        'without `if __name__ == "__main__":`?); the same command, perhaps with fewer '
        "processes, continues where it stopped"
    )
