"""The training loop: runs steps, log lines, checkpoints and evaluations in order.

A machine that may be preempted receives SIGTERM some seconds before; the loop then ends
after the current step.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import DataError, Stopped, require
from albert_tf.training.callbacks import Callback, DivergedError
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.engine import EvaluationStep, TrainStep, leave_together, share
from albert_tf.training.metrics_file import UNFINISHED, unfinished_at
from albert_tf.training.progress import Pace, Progress, Stopwatch
from albert_tf.training.settings import Phase

Evaluate = Callable[[], dict[str, Any]]
# Seconds between attempts to write a checkpoint that the run must not end without.
_PAUSES = (1.0, 5.0, 20.0)


class StopSignals(contextlib.AbstractContextManager):
    """Notes SIGINT (Ctrl-C) and SIGTERM inside a `with` statement, as `received`.

    A second signal has its previous effect, usually to end the process at once. Does
    nothing outside the main thread, where Python cannot handle signals.
    """

    def __init__(self):
        self.received = ""
        self._before: dict[int, object] = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # Background jobs of a shell ignore Ctrl-C, and must still ignore it.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number, frame):
        del frame
        self.received = signal.Signals(number).name
        # Not `print`, which the signal may have interrupted.
        text = "saving at the end of this step; the next one ends at once"
        with contextlib.suppress(OSError):
            os.write(2, f"\n{self.received}: {text}\n".encode())
        # Ctrl-C also ends `tee`: writing to its closed pipe must not end this process.
        stderr = select.poll()
        stderr.register(2, 0)
        if stderr.poll(200):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        self.__exit__()


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains, and calls callbacks, evaluates and writes checkpoints between the steps.

    A checkpoint that cannot be written, because a disk is full or a bucket does not
    answer, is reported and tried again with the next log line; only the last one must
    succeed.

    Attributes:
        step: `TrainStep`. Its objective also describes the results.
        checkpoints: `TrainingCheckpoints`. Already restored.
        evaluate: Function that returns metrics on held-out data, or None.
        signals: `StopSignals`, already watching.
        end: int. Last step of the run, of which a phase may be only a part.
    """

    step: TrainStep
    checkpoints: TrainingCheckpoints
    progress: Progress
    evaluate: Evaluate | None
    callbacks: Sequence[Callback]
    signals: StopSignals
    end: int

    def train(
        self, phase: Phase, batches: Iterable[Any], lines: Sequence[Mapping[str, Any]]
    ) -> None:
        """Trains from the restored step, where batches start, to the end of a phase.

        `lines` are the metrics on record: a run that was killed between a checkpoint
        and its evaluation begins with that evaluation; after a stop by a signal between
        two log lines, the next line is bit-identical to the line of an uninterrupted
        run. Raises `Stopped` after a signal and its checkpoint, `DivergedError`, and
        `DataError` if the last checkpoint cannot be written.
        """
        step, progress, checkpoints = self.step, self.progress, self.checkpoints
        iterator = iter(batches)
        done, last = checkpoints.step, phase.last_step
        evaluated = {line["step"] for line in lines if line["split"] == "eval"}
        if phase.evaluation_is_due(done) and done not in evaluated:
            self._evaluate(done)
        pace = Pace()
        watch, unsaved = Stopwatch(), False
        sums = _Sums(step, unfinished_at(lines, done))
        while done < last and not any(c.should_stop for c in self.callbacks):
            count = pace.limit(phase.next_count(done))
            pace.measured(count, sums.train(iterator, count))
            stop = self._decide(done, sums.results, pace)
            done += count
            progress.advance(done)
            stop &= done < self.end
            save = stop or phase.save_is_due(done)
            # Also with every checkpoint, so that a run resumed from it continues the
            # same sums.
            if save or phase.log_is_due(done):
                values = sums.metrics(watch)
                progress.record("train", done, values)
                if not (phase.save_is_due(done) or phase.log_is_due(done)):
                    progress.note(UNFINISHED, done, sums.unfinished())
                for callback in self.callbacks:
                    callback.on_log(values)
                sums = _Sums(step)
                unsaved |= not self._tried(checkpoints.check, "it is tried again now")
                # In all workers, or in none.
                save |= any(share(step.strategy, unsaved))
            with watch.paused():
                if save:
                    unsaved = not self._save(must=stop or done == self.end)
                if stop:
                    checkpoints.finish()
                    leave_together(step.strategy)  # after the chief has written it
                    # Another worker may have received the signal.
                    raise Stopped(
                        f"stopped at step {done:,} of {self.end:,}; the same command "
                        "continues",
                        self.signals.received,
                    )
                if phase.evaluation_is_due(done):
                    self._evaluate(done)
        # A failed last checkpoint of a phase ends the run only at the end of the run.
        self._tried(checkpoints.finish, "training goes on", must=last == self.end)

    def _decide(self, done: int, results: Mapping[str, Any], pace: Pace) -> bool:
        """Returns whether a signal ends the run; all workers decide alike."""
        # They also continue at the chief's pace. If training diverged in any worker,
        # the same DivergedError is raised in all.
        error = None
        try:
            for callback in self.callbacks:
                callback.on_step(done, results)
        except DivergedError as e:
            error = [str(e), e.step, e.values]
        received = bool(self.signals.received)
        decisions = share(self.step.strategy, [error, received, pace.most])
        for diverged, *_ in decisions:
            if diverged:
                raise DivergedError(*diverged)
        pace.most = decisions[0][-1]
        return any(received for _, received, _ in decisions)

    def _tried(self, call: Callable[[], None], then: str, must: bool = False) -> bool:
        """Returns whether a call succeeded; `must` raises its error."""
        try:
            call()
        except DataError as e:
            if must:
                raise
            self.progress.log(f"warning: {e}; {then}")
            return False
        return True

    def _save(self, must: bool) -> bool:
        """Writes a checkpoint, and returns whether it was written."""
        save = functools.partial(self.checkpoints.save, wait=must)
        if must:
            for pause in _PAUSES:
                if self._tried(save, f"it is tried again in {pause:g} s"):
                    break
                time.sleep(pause)
            else:
                save()
        elif not self._tried(save, "it is tried again with the next log line"):
            return False
        for callback in self.callbacks:
            callback.on_save()
        return True

    def _evaluate(self, done: int) -> None:
        """Evaluates if there is held-out data."""
        if self.evaluate is None:
            return
        values = self.evaluate()
        for callback in self.callbacks:
            callback.on_evaluate(done, values)
        self.progress.record("eval", done, values)
        self.progress.log(self.step.objective.describe(done, values))


def evaluate_batches(
    step: EvaluationStep, sources: Mapping[str, Iterable[Any]], max_steps: int
) -> dict[str, float]:
    """Returns losses and accuracies over held-out batches.

    Each source, with a name or "", has distributed batches, of which at most
    `max_steps` are read (0 for all). A named source adds `source_<name>_loss`. Raises
    `DataError` if there is no batch.
    """
    totals: dict[str, float] = {}
    losses = {}
    for source, batches in sources.items():
        # Tensors until the end: reading a number would wait for the device.
        rows = list(map(step.evaluate, itertools.islice(batches, max_steps or None)))
        require(rows, "the evaluation data holds no batch", error=DataError)
        numbers = dict(zip(step.sum_names, sum(map(np.asarray, rows)), strict=True))
        for name, value in numbers.items():
            totals[name] = totals[name] + value if name in totals else value
        if source:
            losses[f"source_{source}_loss"] = step.objective.metrics(numbers)["loss"]
    return {**step.objective.metrics(totals), **losses}


class _Sums:
    """Adds up the results of the step's calls between two log lines."""

    def __init__(self, step: TrainStep, unfinished: Mapping[str, Any] | None = None):
        self.step = step
        self.results: dict[str, Any] = {}
        self._seconds = 0.0
        if unfinished and set(unfinished["sums"]) == set(step.sum_names):
            self.results = dict(unfinished["sums"])
            self._seconds = unfinished["seconds"]

    def train(self, iterator, count: int) -> float:
        """Runs steps; returns the seconds that the device took."""
        start = time.perf_counter()
        self.results = self.step.train(iterator, count, self.results or None)
        return time.perf_counter() - start

    def unfinished(self) -> dict[str, Any]:
        """Returns the sums from which another process continues, after `metrics`."""
        sums = {name: float(self.results[name]) for name in self.step.sum_names}
        return {"sums": sums, "seconds": self._seconds}

    def metrics(self, watch: Stopwatch) -> dict[str, Any]:
        """Returns the log line for the steps since the previous one."""
        self._seconds += watch.lap()
        results = self.results
        values = self.step.objective.metrics(results)
        norm = float(results["grad_norms"][-1])
        if math.isfinite(norm):  # else the step was skipped, see `DivergenceGuard`
            values["grad_norm"] = norm
        more = ("trust_ratios", "loss_scale", "skipped_steps")
        values |= {name: results[name] for name in more if name in results}
        tokens = float(results["tokens"])
        values["tokens_per_second"] = tokens / self._seconds
        values["tokens"] = tokens
        values["useful_token_rate"] = tokens / float(results["positions"])
        values["learning_rate"] = float(results["learning_rate"])
        return values
