"""Compares a step of pretraining on JAX, TensorFlow and transformers, on this machine.

Each engine has its own process and computes a step in turns, on the same random rows.
transformers, compiled by `torch.compile`, scores the vocabulary at every token.
"""

import contextlib
import functools
import statistics

from albert_tf.config import AlbertConfig
from benchmarks.cases import Case
from benchmarks.contestants import Contestant, in_turns
from benchmarks.report import Report, Row
from benchmarks.rows import random_batch

_NOTES = (
    "first step: with tracing and compilation. step: median of the steps after it.",
)


def run(
    engines: tuple[str, ...],
    preset: str,
    shapes: tuple[tuple[int, int], ...],
    steps: int,
    precision: str,
) -> Report:
    """Measures all engines with every shape.

    Args:
        engines: tuple of str. Some of `contestants.ENGINES`; the first is compared with
            each of the others.
        preset: str. Size of the model; its weights are random.
        shapes: tuple of (int, int). Rows and tokens.
        steps: int. Steps of each.
        precision: str. "bfloat16" or "float32".

    Raises:
        DataError: If a process ends, as by lack of memory.
    """
    config, rows = AlbertConfig.from_preset(preset), []
    for shape in shapes:
        name = f"{shape[0]} x {shape[1]}"
        case = Case(config, random_batch(config, *shape), precision=precision)
        with contextlib.ExitStack() as stack:
            running = {e: stack.enter_context(Contestant(e)) for e in engines}
            for engine, contestant in running.items():
                contestant.prepare({engine: case})
                first = contestant.facts()[engine]["first"]
                rows.append(Row(f"{name}: {engine}, first step", first, "s"))
            runs = {e: functools.partial(one.run, e) for e, one in running.items()}
            found = in_turns(runs, steps, name)
        for engine, seconds in found.items():
            single = {"seconds": [round(one, 4) for one in seconds]}
            milliseconds = 1e3 * statistics.median(seconds)
            rows.append(Row(f"{name}: {engine}", milliseconds, "ms", "", single))
        own = statistics.median(found[engines[0]])
        for engine in engines[1:]:
            ratio = statistics.median(found[engine]) / own
            rows.append(Row(f"{name}: {engine} / {engines[0]}", ratio, ""))
    return Report(f"A step of pretraining by backend, {precision}", rows, notes=_NOTES)
