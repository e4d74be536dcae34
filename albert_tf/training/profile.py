"""Records what the devices do during some steps, for TensorBoard and XProf."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import calls, files
from albert_tf.training.callbacks import Callback
from albert_tf.training.engine import start_trace, stop_trace
from albert_tf.training.progress import EVENTS_FOLDER, Progress
from albert_tf.training.run_folder import RunFolder
from albert_tf.training.settings import TrainingSettings


class Profile(Callback):
    """Writes a trace of the steps that the settings name next to the run's curves.

    A run that continues after the first of these steps traces the others. No call of
    the step crosses the beginning or the end (`Phase.next_count`).
    """

    def __init__(
        self, folder: RunFolder, settings: TrainingSettings, progress: Progress
    ):
        self._target = folder.join(EVENTS_FOLDER)
        self._first, self._last = settings.profiled
        self._progress = progress
        self._local: tempfile.TemporaryDirectory | None = None
        if progress.first_step >= self._last:
            progress.log(f"--profile_steps: step {self._last:,} is past; no profile")
        self._begin(progress.first_step)

    def on_step(self, done: int, results: Mapping[str, Any]) -> None:
        """Ends the trace after its last step, or begins it before its first one."""
        done += len(results["losses"])
        if done >= self._last:
            self.on_end()
        self._begin(done)

    def on_end(self) -> None:
        """Writes the trace, also of steps that were not all made."""
        local, self._local = self._local, None
        if local is None:
            return
        with self._failures_reported(), local:
            stop_trace()
            for name in files.tree(local.name):
                path = files.join(self._target, name)
                files.make_folder(os.path.dirname(path))
                files.write_bytes(path, files.read_bytes(files.join(local.name, name)))
            self._progress.log(f"the profile is in {self._target}")

    def _begin(self, done: int) -> None:
        """Begins the trace if the next step is one of its own."""
        if self._local is None and self._first <= done + 1 <= self._last:
            with self._failures_reported():
                # The profilers write to local disks only.
                local = tempfile.TemporaryDirectory()
                start_trace(local.name)
                self._local = local

    @contextlib.contextmanager
    def _failures_reported(self) -> Iterator[None]:
        """A run does not end because it cannot be profiled."""
        try:
            with calls.as_os_error():
                yield
        except (DataError, OSError, RuntimeError, UsageError) as e:
            reason = calls.reason_of(e) if isinstance(e, OSError) else e
            self._progress.log(f"warning: no profile: {reason}")
