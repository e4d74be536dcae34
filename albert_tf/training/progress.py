"""Shows and records a run: a progress bar, JSON lines, TensorBoard."""

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tqdm
from absl import logging

from albert_tf.storage import calls, files
from albert_tf.training.metrics_file import METRICS_FILE, MetricsFile

EVENTS_FOLDER = "tensorboard"
# A run can only be stopped between calls; a preempted machine leaves 30 seconds.
_SHORT = 1.0
_LONG = 4.0


class Progress(contextlib.AbstractContextManager):
    """Shows and records a run; does nothing in workers other than the chief.

    It writes `metrics.jsonl` and `tensorboard/` in a folder. `shown` has short names of
    the training metrics that the bar shows.
    """

    def __init__(
        self,
        folder: str,
        first_step: int,
        num_steps: int,
        chief: bool,
        *,
        title: str,
        shown: Mapping[str, str],
    ):
        self.first_step = first_step
        self.chief = chief
        self.shown = shown
        self._warned = False
        if not chief:
            return
        self.metrics = MetricsFile(files.join(folder, METRICS_FILE), first_step)
        where = files.join(folder, EVENTS_FOLDER)
        try:
            calls.repeated(_begin_session, where, first_step)
            self.writer = calls.repeated(tf.summary.create_file_writer, where)
        except OSError as e:
            self._warn(e)
            self.writer = tf.summary.create_noop_writer()
        # Redraw a terminal often, but add only few lines to a log file.
        interval = 0.5 if sys.stderr.isatty() else 10.0
        self.bar = tqdm.tqdm(
            total=num_steps,
            initial=first_step,
            unit="step",
            desc=title,
            mininterval=interval,
            dynamic_ncols=True,
        )

    def advance(self, step: int) -> None:
        """Moves the bar."""
        if self.chief:
            self.bar.update(step - self.bar.n)

    def record(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes a line of metrics, and the values to TensorBoard."""
        if not self.chief:
            return
        self.metrics.append({"split": split, "step": step, **values})
        try:
            with calls.as_os_error(), self.writer.as_default(step=step):
                for name, value in _flat(values):
                    tf.summary.scalar(f"{split}/{name}", value)
        except OSError as e:  # For example, a full disk.
            self._warn(e)
        if split == "train":
            shown = {
                s: f"{values[n]:.3f}" for n, s in self.shown.items() if n in values
            }
            if skipped := values.get("skipped_steps"):
                shown["skipped"] = f"{skipped:,}"
            speed = f"{values['tokens_per_second']:,.0f}"
            self.bar.set_postfix({**shown, "tok/s": speed}, refresh=False)

    def note(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes to `metrics.jsonl` only, for events that do not belong on a curve."""
        if self.chief:
            self.metrics.append({"split": split, "step": step, **values})

    def lines(self) -> list[dict[str, Any]]:
        """Returns the lines in force, or nothing in a worker that does not write."""
        return self.metrics.settled() if self.chief else []

    def log(self, text: str) -> None:
        """Prints a line above the bar."""
        if self.chief:
            self.bar.write(text, file=sys.stderr)

    def __exit__(self, *exception):
        if self.chief:
            self.bar.close()
            self.metrics.settle()
            try:
                with calls.as_os_error():
                    self.writer.close()
            except OSError as e:
                self._warn(e)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            logging.warning("tensorboard is not written: %s", calls.reason_of(error))
        self._warned = True


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields names and numbers; the name of a mapping precedes the names in it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", v) for inner, v in value.items())
        else:
            yield name, value


class Stopwatch:
    """Measures laps in seconds, without pauses."""

    def __init__(self):
        self._start = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds of this lap and starts the next one."""
        now = time.perf_counter()
        seconds, self._start = now - self._start, now
        return seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time inside a `with` statement."""
        start = time.perf_counter()
        yield
        self._start += time.perf_counter() - start


class Pace:
    """Makes calls of the step as long as possible, up to a few seconds.

    The next call has at most `most` steps. Several processes must make the same calls,
    so they use the chief's value.
    """

    def __init__(self):
        self.most = 1

    def limit(self, count: int) -> int:
        """Returns the number of the next `count` steps to run in one call."""
        return min(count, self.most)

    def measured(self, count: int, seconds: float) -> None:
        """Updates the pace after a call of `count` steps."""
        if seconds > _LONG:
            self.most = max(1, count // 2)
        elif seconds < _SHORT and count == self.most:
            self.most *= 2


def _begin_session(folder: str, first_step: int) -> None:
    """Tells TensorBoard that later steps it has read will be repeated."""
    tf.io.gfile.makedirs(folder)
    # Names of event files contain whole seconds, so two starts need different ones.
    names = [
        re.search(r"tfevents\.(\d+)", name) for name in tf.io.gfile.listdir(folder)
    ]
    newest = max((int(name[1]) for name in names if name), default=0)
    time.sleep(min(max(newest + 1 - time.time(), 0.0), 1.0))
    # TensorBoard reads files in the order of their names. This one sorts before
    # TensorFlow's own, whose name continues with the host's.
    name = f"events.out.tfevents.{int(time.time()):010d}.+start"
    started = {"status": tf.compat.v1.SessionLog.START}
    with tf.io.TFRecordWriter(files.join(folder, name)) as writer:
        for content in (
            {"file_version": "brain.Event:2"},
            {"step": first_step + 1, "session_log": started},
        ):
            event = tf.compat.v1.Event(wall_time=time.time(), **content)
            writer.write(event.SerializeToString())
