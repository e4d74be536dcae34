"""Measures the data engine: tokens per second and peak memory of making records."""

import concurrent.futures
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data

# One process of the original (google-research/albert), text to TFRecord, on the class
# of machine for which the targets of this package were set.
ORIGINAL_TOKENS_PER_SECOND = 38_900


class RecordSpeed(NamedTuple):
    """One measured run."""

    num_processes: int
    num_tokens: int  # of the records
    seconds: float  # wall clock, start of the workers and the data card included
    peak_megabytes: float  # of all processes together; nan where /proc is missing

    @property
    def tokens_per_second(self) -> float:
        """Returns the rate."""
        return self.num_tokens / self.seconds


def measure_records(
    inputs: str, tokenizer, config: RecordConfig, num_processes: int
) -> RecordSpeed:
    """Makes a data set in a temporary folder and measures how long it takes.

    Args:
        inputs: str. As the command's `--input_file`.
        tokenizer: `Tokenizer`. As for `create_pretraining_data`.
        config: `RecordConfig`. Kind of records to make.
        num_processes: int. Number of processes.
    """
    folder = tempfile.mkdtemp()
    corpus = Corpus(inputs)
    try:
        with PeakMemory() as memory:
            start = time.perf_counter()
            card = create_pretraining_data(
                corpus,
                os.path.join(folder, "data"),
                tokenizer,
                config,
                num_processes=num_processes,
                progress=False,
            )
            seconds = time.perf_counter() - start
    finally:
        shutil.rmtree(folder)
    tokens = card["examples"]["tokens"]
    return RecordSpeed(num_processes, tokens, seconds, memory.peak / 2**20)


class PeakMemory:
    """Watches the memory of this process and its children, shared pages once."""

    def __init__(self):
        self.peak = 0.0 if sys.platform == "linux" else float("nan")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            sizes = (_proportional_size(pid) for pid in _family(os.getpid()))
            self.peak = max(self.peak, sum(sizes))


def _family(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(child) for child in file.read().split()]
    except OSError:
        children = []
    return [pid, *(member for child in children for member in _family(child))]


def _proportional_size(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0
    return sum(int(line[1]) * 1024 for line in lines if line[0] == "Pss:")


def run_in_new_process(function: Callable, *arguments):
    """Returns the result of a module-level function, computed in a new process.

    Nothing is inherited: no memory, no threads, no compiled graphs.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
