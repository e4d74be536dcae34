"""Measures how long a written model takes."""

import statistics
import time
from typing import Any

import numpy as np

from albert_tf.export.runtimes.runtime import NUM_THREADS, Run
from albert_tf.export.runtimes.tokens_graph import TokensGraph
from albert_tf.reports import environment

_BATCH_SIZES = (1, 8)
_TOKENS = 128
# Runs are repeated until both are reached, or the number alone.
_SECONDS, _FEW_RUNS, _MANY_RUNS = 0.5, 2, 20


def measure(graph: TokensGraph, run: Run, length: int) -> dict[str, Any]:
    """Returns the time per row at some batch sizes, and on what it was measured.

    Args:
        graph: `TokensGraph`. The model before it was written.
        run: callable. Runs the written model.
        length: int. Maximum length of a row; longer ones than 128 are not measured.
    """
    tokens = min(_TOKENS, length)
    rng = np.random.default_rng(0)
    machine = environment.machine()
    times = {}
    for rows in _BATCH_SIZES:
        batch = graph.random_batch(rows, tokens, rng, full=True)
        run(batch)  # The first run also prepares the later ones.
        times[str(rows)] = round(1000 * _median(run, batch) / rows, 3)
    return {
        "milliseconds_per_row": times,  # by batch size
        "tokens": tokens,
        "threads": NUM_THREADS,
        **{key: machine[key] for key in ("cpu", "cores", "load_at_start")},
    }


def _median(run: Run, batch) -> float:
    seconds: list[float] = []
    while len(seconds) < _FEW_RUNS or (
        sum(seconds) < _SECONDS and len(seconds) < _MANY_RUNS
    ):
        start = time.perf_counter()
        run(batch)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
