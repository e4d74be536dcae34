"""Writes the files of checkpoints, if asked while training goes on."""

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.storage.step_files import find_checkpoints

# What a process killed while writing leaves behind.
_UNFINISHED = re.compile(r"step-\d+_temp.*")


class CheckpointWriter:
    """Writes checkpoints to a folder and removes old ones.

    TensorFlow's own asynchronous writing reports an error only at the next save, and
    the files of that save are lost as well; here `wait` reports it.

    Args:
        values: Mapping. Variables, or mappings of them, by name.
        folder: str. Folder of the checkpoints.
        keep: int. Number of checkpoints to keep.
        asynchronous: bool. Whether `save` only copies the values, and a thread writes
            them.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        folder: str | os.PathLike,
        *,
        keep: int,
        asynchronous: bool,
    ):
        self.folder = os.fspath(folder)
        self._copies: list[tuple[tf.Variable, Any]] = []
        if asynchronous:
            values = tf.nest.map_structure(self._copy, dict(values))
        self._repair()
        self._manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(**values),
            self.folder,
            max_to_keep=keep,
            checkpoint_name="step",
        )
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._error: DataError | None = None

    def save(self, step: int, wait: bool = False) -> None:
        """Writes a checkpoint, or begins to.

        Args:
            step: int.
            wait: bool. Whether to wait until it is written.

        Raises:
            DataError: If it cannot be written; without `wait`, also if the one before
                could not be, although this one is being written.
        """
        failed = self._ended()
        if self._asynchronous:
            for copy, variable in self._copies:
                copy.assign(tf.convert_to_tensor(variable))
            self._thread = threading.Thread(target=self._write, args=(step,))
            self._thread.start()
        else:
            self._write(step)
        if wait or not self._asynchronous:
            failed = self._ended()
        if failed:
            raise failed

    def check(self) -> None:
        """Says whether what was begun last has failed by now, without waiting.

        Raises:
            DataError: If it could not be written; said once.
        """
        if self._thread and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
            DataError: If what was begun last could not be written.
        """
        failed = self._ended()
        if failed:
            raise failed

    def _ended(self) -> DataError | None:
        """Waits for the thread; returns its error, once."""
        if self._thread:
            self._thread.join()
        self._thread, failed, self._error = None, self._error, None
        return failed

    def _write(self, step: int) -> None:
        try:
            self._manager.save(checkpoint_number=step)
        except Exception as e:  # A thread must not fail unnoticed.
            # Otherwise the next attempt might find the disk as full.
            with contextlib.suppress(OSError, ValueError, tf.errors.OpError):
                self._remove_unfinished()
            self._error = DataError(
                f"{self.folder}: the checkpoint of step {step} cannot be written: "
                f"{reason_of(e)}"
            )

    def _copy(self, variable) -> tf.Variable:
        with tf.device("/cpu:0"):
            copy = tf.Variable(tf.convert_to_tensor(variable), trainable=False)
        self._copies.append((copy, variable))
        return copy

    def _repair(self) -> None:
        """Removes what a killed run left, and lists the complete checkpoints anew."""
        self._remove_unfinished()
        found = find_checkpoints(self.folder)
        where = files.join(self.folder, "checkpoint")
        if found:
            names = [os.path.basename(path) for path in found.values()]
            lines = [f'model_checkpoint_path: "{names[0]}"']
            lines += [f'all_model_checkpoint_paths: "{n}"' for n in reversed(names)]
            # Without times, TensorFlow would keep the old checkpoints for ever.
            times = range(1, len(names) + 1)
            lines += [f"all_model_checkpoint_timestamps: {n}" for n in times]
            files.write_text(where, "\n".join(lines) + "\n")
        elif files.is_folder(self.folder):
            files.remove(where)

    def _remove_unfinished(self) -> None:
        names = files.list_folder(self.folder) if files.is_folder(self.folder) else []
        for name in names:
            if _UNFINISHED.fullmatch(name):
                files.remove_tree(files.join(self.folder, name))


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error of TensorFlow's."""
    return (str(getattr(error, "message", error)).splitlines() or [""])[0]
