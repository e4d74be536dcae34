"""Writes the files of checkpoints, if asked while training goes on."""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.storage.step_files import find_checkpoints

# What a process killed while writing leaves behind, and the data of a checkpoint.
_UNFINISHED = re.compile(r"step-\d+(_temp.*|\..*\.tempstate\d+)")
_DATA = re.compile(r"step-(\d+)\.data-\d{5}-of-\d{5}")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CheckpointWriter:
    """Writes checkpoints to a folder and removes old ones.

    On a full disk, older checkpoints than `keep` says make room for a new one, except
    the last one that is known to be whole.

    TensorFlow's own asynchronous writing reports an error only at the next save, and
    the files of that save are lost as well; here `wait` reports it.

    Args:
        values: Mapping. Variables, or mappings of them, by name.
        folder: str. Folder of the checkpoints.
        keep: int. Number of checkpoints to keep.
        asynchronous: bool. Whether `save` only copies the values, and a thread writes
            them.

    Attributes:
        last: int or None. The step restored or written last: that checkpoint is whole.

    Raises:
        UsageError: If `keep` is less than 1.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        folder: str | os.PathLike,
        *,
        keep: int,
        asynchronous: bool,
    ):
        if keep < 1:
            raise UsageError(f"--keep_checkpoint_max must be positive, received {keep}")
        self.folder = os.fspath(folder)
        self.last: int | None = None
        self._keep = keep
        self._copies: list[tuple[tf.Variable, Any]] = []
        if asynchronous:
            values = tf.nest.map_structure(self._copy, dict(values))
        self._remove_unfinished()
        self._list()
        self._checkpoint = tf.train.Checkpoint(**values)
        # Part of every checkpoint; made when it is asked for.
        _ = self._checkpoint.save_counter
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
        removed: list[int] = []
        while True:
            try:
                self._save(step)
                break
            except Exception as e:  # A thread must not fail unnoticed.
                freed = self._make_room(e)
                if freed is None:
                    self._error = DataError(
                        f"{self.folder}: the checkpoint of step {step} cannot be "
                        f"written: {reason_of(e)}"
                    )
                    break
                removed.append(freed)
        if removed:
            logging.warning(
                "%s: the disk is full; for the checkpoint of step %d, older ones were "
                "removed: %s",
                *(self.folder, step, ", ".join(f"step {n}" for n in removed)),
            )

    def _make_room(self, error: Exception) -> int | None:
        """Removes what a failed attempt left, and on a full disk an old checkpoint.

        Returns:
            The step of a checkpoint removed, so that another attempt may succeed.
        """
        with contextlib.suppress(OSError, ValueError, tf.errors.OpError):
            self._remove_unfinished()
            others = set(find_checkpoints(self.folder)) - {self.last}
            if others and self.last is not None and _is_full(error):
                last = self.last
                # Those of later steps are damaged.
                step = min(others, key=lambda step: (step < last, step))
                self._remove([step])
                return step
        return None

    def _save(self, step: int) -> None:
        prefix = files.join(self.folder, f"step-{step}")
        self._checkpoint.write(prefix)
        if not files.is_remote(self.folder):
            # Before older ones are removed: a power cut may come at any moment.
            for name in files.list_folder(self.folder):
                if name.startswith(f"step-{step}."):
                    files.sync(files.join(self.folder, name))
            files.sync(self.folder)
        self.last = step
        found = find_checkpoints(self.folder)
        # Those of later steps are damaged, or the run would not be here.
        kept = [n for n in found if n <= step][: self._keep]
        self._remove(set(found) - set(kept))
        self._list()

    def _remove(self, steps: Collection[int]) -> None:
        """Removes checkpoints; the index first, because it makes them complete."""
        for step in steps:
            files.remove(files.join(self.folder, f"step-{step}.index"))
        if steps:
            self._remove_unfinished()

    def _copy(self, variable) -> tf.Variable:
        with tf.device("/cpu:0"):
            copy = tf.Variable(tf.convert_to_tensor(variable), trainable=False)
        self._copies.append((copy, variable))
        return copy

    def _list(self) -> None:
        """Writes the list in which TensorFlow looks for the latest checkpoint."""
        found = find_checkpoints(self.folder)
        where = files.join(self.folder, "checkpoint")
        if found:
            names = [os.path.basename(path) for path in found.values()]
            lines = [f'model_checkpoint_path: "{names[0]}"']
            lines += [f'all_model_checkpoint_paths: "{n}"' for n in reversed(names)]
            files.write_text(where, "\n".join(lines) + "\n")
        elif files.is_folder(self.folder):
            files.remove(where)

    def _remove_unfinished(self) -> None:
        """Removes half-written files, and data that no index makes a checkpoint."""
        names = files.list_folder(self.folder) if files.is_folder(self.folder) else []
        whole = find_checkpoints(self.folder)
        for name in names:
            data = _DATA.fullmatch(name)
            if _UNFINISHED.fullmatch(name) or (data and int(data[1]) not in whole):
                files.remove_tree(files.join(self.folder, name))


def _is_full(error: BaseException) -> bool:
    """Returns whether a disk, or a user's share of it, is full."""
    return any(os.strerror(number) in str(error) for number in _FULL)


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error of TensorFlow's."""
    return (str(getattr(error, "message", error)).splitlines() or [""])[0]
