"""Models in separate processes, which compute on request, so that they take turns.

A process has one framework, and its peak memory is due to its models alone.
"""

import importlib.util
import math
import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Self

import tqdm

from albert_tf.errors import DataError, UsageError
from benchmarks.cases import Case, Prepared, reason

# Framework -> the package to install, and the way to install it.
ENGINES = {
    "jax": "albert_tf[jax]",
    "tensorflow": "",
    "transformers": "albert_tf[peers]",
}
_SILENCE = 300.0  # seconds after which a process is given up
_TURN = 0.025  # least seconds of a turn


class Contestant:
    """A process that computes cases.

    Args:
        engine: str. One of `ENGINES`.
    """

    def __init__(self, engine: str):
        self.engine = engine
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        given = theirs, engine
        self._process = context.Process(target=_obey, args=given, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is noticed

    def device(self) -> str:
        """Returns the kind of its device, "cpu" if there is no other."""
        self._send(None)
        return self._receive()

    def prepare(self, cases: Mapping[str, Case]) -> None:
        """Makes the process prepare cases; `facts` waits for it."""
        self._send(dict(cases))

    def facts(self) -> dict[str, dict[str, Any]]:
        """Returns the facts of every case that is prepared (`Prepared`)."""
        return self._receive()

    def run(self, name: str, steps: int) -> float:
        """Computes steps of a case; returns seconds."""
        self._send((name, steps))
        return self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._line.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()  # until then it keeps memory of the device

    def _send(self, message) -> None:
        try:
            self._line.send(message)
        except OSError:
            raise self._ended() from None

    def _receive(self):
        try:
            if not self._line.poll(_SILENCE):
                raise DataError(f"{self.engine}: no answer for {_SILENCE:.0f} s")
            answer = self._line.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ended(self) -> DataError:
        self._process.join(5)
        code = self._process.exitcode
        return DataError(f"{self.engine}: its process ended with code {code}")


def check_engines(engines: tuple[str, ...]) -> None:
    """Raises `UsageError` if an engine is unknown or not installed."""
    for engine in engines:
        if engine not in ENGINES:
            raise UsageError(
                f"--backend: must be some of {', '.join(ENGINES)}, received {engine!r}"
            )
        if importlib.util.find_spec(engine) is None:
            raise UsageError(
                f"--backend={engine}: not installed: pip install '{ENGINES[engine]}'"
            )


def in_turns(
    runs: Mapping[str, Callable[[int], float]], rounds: int, title: str, least: int = 1
) -> dict[str, list[float]]:
    """Returns the seconds of a step in every turn of every contestant.

    Args:
        runs: dict. Functions that compute a number of steps and return seconds.
        rounds: int. Number of turns of each.
        title: str. Noun of the items in the progress bar.
        least: int. Least number of steps of a turn.
    """
    counts = {}
    for name, run in runs.items():
        run(2)
        counts[name] = max(least, math.ceil(_TURN * 2 / run(2)))
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in tqdm.tqdm(range(rounds), desc=title):
        for name, run in runs.items():
            found[name].append(run(counts[name]) / counts[name])
    return found


def median(found: Mapping[str, list[float]]) -> dict[str, float]:
    """Returns the median of every contestant."""
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _obey(line, engine: str) -> None:
    """Prepares the received cases; then computes steps for every message."""
    os.environ["KERAS_BACKEND"] = {"jax": "jax"}.get(engine, "tensorflow")
    # By default, JAX takes half of the memory at once, for all of its programs. If
    # allocating on demand, it has kept three times that, due to fragmentation.
    os.environ.setdefault("XLA_CLIENT_MEM_FRACTION", "0.5")
    try:
        framework = _engine(engine)
        prepared: dict[str, Prepared] = {}
        while True:
            message = line.recv()
            if message is None:
                line.send(framework.device())
                continue
            if isinstance(message, dict):
                prepared = framework.prepare(message)
                line.send({name: one.facts for name, one in prepared.items()})
                continue
            name, steps = message
            start = time.perf_counter()
            prepared[name].run(steps)
            line.send(time.perf_counter() - start)
    except EOFError:
        return
    except Exception as e:
        traceback.print_exc()
        line.send(DataError(f"{engine}: {reason(e)}"))


def _engine(name: str):
    """Returns the module of a framework, which imports it."""
    if name == "jax":
        from benchmarks import engine_jax as engine
    elif name == "transformers":
        from benchmarks import engine_transformers as engine
    else:
        from benchmarks import engine_tensorflow as engine
    return engine
