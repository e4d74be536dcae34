"""Checkpoints of a training run: weights, slots, averages, step and seed.

Tensors have the canonical weight names, not names derived from attributes of Python
objects, so checkpoints stay readable when the code changes.
"""

import contextlib
import errno
import os
import re
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.errors import DataError, without_graph_names
from albert_tf.models.base import weight_names
from albert_tf.storage import files, streams
from albert_tf.storage.streams import find_checkpoints
from albert_tf.training.engine import value_of
from albert_tf.training.weights import WeightAverages
from albert_tf.training.workers import digest_of

# Errors raised by reading a damaged file; a truncated one raises IndexError. Other
# errors, such as a lack of memory, say nothing about the file.
_DAMAGES = (
    tf.errors.DataLossError,
    tf.errors.InternalError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnimplementedError,
    IndexError,
    RuntimeError,
)


def latest_step(folder: str | os.PathLike) -> int | None:
    """Returns the step of the latest checkpoint in a folder, or None without one."""
    return next(iter(find_checkpoints(folder)), None)


# Files left by a process that was killed while writing, and data of checkpoints.
_UNFINISHED = re.compile(r"step-\d+(_temp.*|\..*\.tempstate\d+)")
_DATA = re.compile(r"step-(\d+)\.data-\d{5}-of-\d{5}")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: BaseException) -> str:
    """Returns the first line of a TensorFlow error."""
    lines = str(getattr(error, "message", error)).splitlines() or [""]
    return without_graph_names(lines[0])


class TrainingCheckpoints:
    """Saves and restores a run.

    Everything random in a run is a function of its seed and the step (the order of the
    examples, their masks, dropout), so with these two a restored run continues exactly
    as if it had not stopped.

    On a full disk, checkpoints are removed beyond what `keep` says to make room for a
    new one, except the last one that is known to be intact. TensorFlow's own
    asynchronous writing reports an error only at the next save, and loses the files of
    that save as well; here `finish` and `check` report it.

    Args:
        optimizer: Optimizer of the run, already built.
        extra: Variables by name that are trained, but do not belong to the model.
        keep: int. Number of checkpoints to keep; older ones are removed.
        asynchronous: bool. Whether `save` only copies the values, and a thread writes
            them.
        writes: bool. Whether this process writes them. In a run on several machines
            only the chief does; the others take part in saving, because it gathers
            slots that are divided among them.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        seed: int,
        extra: Mapping[str, keras.Variable] = MappingProxyType({}),
        keep: int = 5,
        asynchronous: bool = False,
        writes: bool = True,
    ):
        weights = weight_names(model)
        trained = {name: v for name, v in weights.items() if v.trainable} | extra
        slots = {
            f"{name}/{slot}": optimizer.slot(variable, slot)
            for name, variable in trained.items()
            for slot in ("m", "v")
        }
        self.optimizer = optimizer
        self._seed = tf.Variable(seed, dtype=tf.int64, trainable=False)
        self._values = {"weights": weights, "slots": slots}
        if extra:
            self._values["extra"] = dict(extra)
        if optimizer.ema_decay:
            # Runs without averages keep the layout of their checkpoints.
            self._values["averages"] = WeightAverages(model, optimizer).averages
        if optimizer.loss_scale:
            self._values["loss_scale"] = optimizer.loss_scale.state
        everything = {**self._values, "step": optimizer.iterations}
        # Copies in host memory, each with the variable it was copied from.
        self._copies: list[tuple[tf.Variable, keras.Variable]] = []
        # Files have TensorFlow's format on every back end.
        self._is_native = keras.backend.backend() == "tensorflow"
        take = (lambda v: v.value) if self._is_native else self._copy
        values = {**tf.nest.map_structure(take, everything), "seed": self._seed}
        self.checkpoint = tf.train.Checkpoint(**values)
        self._keep = keep
        self._writes = writes
        self.folder = os.fspath(folder)
        self._copied: int | None = None
        # The step restored or written last.
        self.intact_step: int | None = None
        self._thread = ThreadPoolExecutor(1) if asynchronous else None
        self._begun: Future | None = None
        if asynchronous and self._is_native:
            values |= tf.nest.map_structure(self._copy, everything)
        self._written = tf.train.Checkpoint(**values)
        # Every checkpoint contains the counter, which is created on first access.
        # Otherwise `restore` would create it, and read the file once more.
        _ = self._written.save_counter, self.checkpoint.save_counter
        if writes:
            self._remove_unfinished()

    @property
    def step(self) -> int:
        """The number of updates made so far."""
        return int(value_of(self.optimizer.iterations))

    def facts(self) -> dict[str, str]:
        """Returns the step and digests of a checkpoint's content, by title."""
        digests = {
            title: digest_of({name: value_of(v) for name, v in variables.items()})
            for title, variables in self._values.items()
        }
        return {"step": str(self.step), **digests}

    def save(self, wait: bool = False) -> None:
        """Writes a checkpoint of the current step, completely or not at all.

        With `wait`, it also waits for files that are written asynchronously; without,
        it raises `DataError` also for the previous checkpoint.
        """
        failed = self._ended()
        # Copy once per step: only this worker makes another attempt, but gathering the
        # values may need all workers.
        if self._copied != self.step:
            for copy, variable in self._copies:
                copy.assign(value_of(variable))
            self._copied = self.step
        if not self._writes:
            return
        if self._thread is None:
            self._write(self.step)
            return
        self._begun = self._thread.submit(self._write, self.step)
        if wait:
            failed = self._ended()
        if failed:
            raise failed

    def check(self) -> None:
        """Raises `DataError`, without waiting, if the last write has failed; once."""
        if self._begun and self._begun.done() and (failed := self._ended()):
            raise failed

    def settle(self) -> None:
        """Waits for the files being written; only logs a failure."""
        if failed := self._ended():
            logging.warning("%s", failed)

    def finish(self) -> None:
        """Waits for the files being written; raises `DataError` if they cannot be."""
        if failed := self._ended():
            raise failed

    def _ended(self) -> BaseException | None:
        """Waits for the last write; returns its error, once."""
        failed = self._begun and self._begun.exception()
        self._begun = None
        return failed

    def _write(self, step: int) -> None:
        removed: list[int] = []
        while True:
            try:
                self._save(step)
                break
            except Exception as e:
                freed = self._make_room(e)
                if freed is None:
                    raise DataError(
                        f"{self.folder}: the checkpoint of step {step} cannot be "
                        f"written: {reason_of(e)}"
                    ) from e
                removed.append(freed)
        if removed:
            logging.warning(
                "%s: the disk is full; for the checkpoint of step %d, older ones were "
                "removed: %s",
                self.folder,
                step,
                ", ".join(f"step {n}" for n in removed),
            )

    def _make_room(self, error: Exception) -> int | None:
        """Frees space after a failure; returns the step of a removed checkpoint."""
        is_full = any(os.strerror(number) in str(error) for number in _FULL)
        with contextlib.suppress(OSError, ValueError, tf.errors.OpError):
            self._remove_unfinished()
            others = set(find_checkpoints(self.folder)) - {self.intact_step}
            if others and self.intact_step is not None and is_full:
                last = self.intact_step
                # Checkpoints of later steps are damaged.
                step = min(others, key=lambda step: (step < last, step))
                self._remove([step])
                return step
        return None

    def _save(self, step: int) -> None:
        prefix = files.join(self.folder, f"step-{step}")
        self._written.write(prefix)
        if not files.is_remote(self.folder):
            # Sync before older ones are removed: power may fail at any moment.
            for name in files.list_folder(self.folder):
                if name.startswith(f"step-{step}."):
                    files.sync(files.join(self.folder, name))
            files.sync(self.folder)
        self.intact_step = step
        checkpoints = find_checkpoints(self.folder)
        # Checkpoints of later steps are damaged: the run did not continue from them.
        steps = [n for n in checkpoints if n <= step][: self._keep]
        self._remove(set(checkpoints) - set(steps))
        # TensorFlow looks for the latest checkpoint in this list.
        lines = [f'model_checkpoint_path: "step-{step}"']
        lines += [f'all_model_checkpoint_paths: "step-{n}"' for n in reversed(steps)]
        files.write_text(files.join(self.folder, "checkpoint"), "\n".join(lines) + "\n")

    def _remove(self, steps: Collection[int]) -> None:
        """Removes checkpoints, the index first, because it makes them complete."""
        for step in steps:
            files.remove(files.join(self.folder, f"step-{step}.index"))
        if steps:
            self._remove_unfinished()

    def _copy(self, variable) -> tf.Variable:
        value = value_of(variable)
        if variable is self.optimizer.iterations:
            value = value.astype(np.int64)  # TensorFlow's type, on every back end
        with tf.device("/cpu:0"):
            copy = tf.Variable(value, trainable=False)
        self._copies.append((copy, variable))
        return copy

    def _remove_unfinished(self) -> None:
        """Removes half-written files, and data files without an index."""
        names = files.list_folder(self.folder) if files.is_folder(self.folder) else []
        whole = find_checkpoints(self.folder)
        for name in names:
            data = _DATA.fullmatch(name)
            if _UNFINISHED.fullmatch(name) or (data and int(data[1]) not in whole):
                files.remove_tree(files.join(self.folder, name))

    def restore(self, folder: str | os.PathLike) -> int | None:
        """Restores the latest intact checkpoint, if any, and returns its step.

        Raises `DataError` if all checkpoints are damaged, or the latest belongs to
        another model.
        """
        checkpoints = find_checkpoints(folder)
        seed = int(self._seed.numpy())
        for step, path in checkpoints.items():
            copy = path
            try:
                with streams.in_memory(path) as copy:
                    self._restore(copy)
            except OSError as e:
                raise DataError(
                    f"{path}: cannot be read: {e.strerror}; if that stays so, remove "
                    f"{path}.* to continue from the checkpoint before"
                ) from e
            except (tf.errors.OpError, IndexError, RuntimeError) as e:
                reason = reason_of(e).replace(copy, path)[:200]
                # TensorFlow's reader raises the base class `OpError` for unknown
                # kinds of errors.
                if not isinstance(e, _DAMAGES) and type(e) is not tf.errors.OpError:
                    raise DataError(f"{path}: cannot be read: {reason}") from e
                logging.warning("%s: is damaged and left out: %s", path, reason)
                continue
            except (AssertionError, ValueError) as e:
                raise DataError(
                    f"{path}: must be a checkpoint of this model and optimizer: "
                    f"{reason_of(e)[:200]}"
                ) from None
            if int(self._seed.numpy()) != seed:
                raise DataError(
                    f"{path}: was trained with --seed={int(self._seed.numpy())}, "
                    f"received --seed={seed}"
                )
            self.intact_step = step
            return step
        if checkpoints:
            raise DataError(
                f"{os.fspath(folder)}: every checkpoint is damaged; another "
                "--output_dir begins anew"
            )
        return None

    def _restore(self, path: str) -> None:
        self._copied = None
        self.checkpoint.restore(path).assert_consumed()
        if not self._is_native:
            for copy, variable in self._copies:
                variable.assign(copy.numpy())
