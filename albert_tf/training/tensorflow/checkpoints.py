"""Checkpoints of a training run: weights, slots, averages, step and seed.

Tensors have the canonical weight names, not names derived from the attributes of Python
objects, so checkpoints stay readable when the code changes.
"""

import os

import keras
import tensorflow as tf
from absl import logging

from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.storage import files, streams
from albert_tf.storage.calls import repeated
from albert_tf.storage.step_files import find_checkpoints
from albert_tf.training.tensorflow.agreement import digest_of
from albert_tf.training.tensorflow.averages import WeightAverages
from albert_tf.training.tensorflow.writer import CheckpointWriter, reason_of

# What reading a damaged file raises; a file cut short is an IndexError. Others, of a
# bucket that does not answer or for want of memory, say nothing about the file.
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
    """Returns the step of the latest checkpoint in a folder, None without one."""
    return next(iter(find_checkpoints(folder)), None)


class TrainingCheckpoints:
    """Saves and restores a run.

    Everything random in a run is a function of its seed and the step (the order of the
    examples, their masks, dropout), so with these two a restored run continues
    exactly as if it had not stopped.

    Args:
        folder: str. Folder of the checkpoints.
        model: Keras model of the run.
        optimizer: Optimizer of the run, already built.
        seed: int. Seed of the run.
        keep: int. Number of checkpoints to keep; older ones are removed.
        asynchronous: bool. Whether training goes on while a file is written.
        helper: str. In a run on several machines, the name of a worker that is not the
            chief, different for each, such as "worker-1". It must take part in saving
            but leaves nothing behind. Empty in the chief.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        seed: int,
        keep: int = 5,
        asynchronous: bool = False,
        helper: str = "",
    ):
        weights = weight_names(model)
        slots = {
            f"{name}/{slot}": optimizer.slot(variable, slot)
            for name, variable in weights.items()
            if variable.trainable
            for slot in ("m", "v")
        }
        self.optimizer = optimizer
        self._seed = tf.Variable(seed, dtype=tf.int64, trainable=False)
        self._values = {
            "weights": {k: v.value for k, v in weights.items()},
            "slots": {k: v.value for k, v in slots.items()},
        }
        if optimizer.ema_decay:
            # Runs without them keep the layout that they always had.
            averages = WeightAverages(model, optimizer).averages
            self._values["averages"] = {k: v.value for k, v in averages.items()}
        everything = {
            **self._values,
            "step": optimizer.iterations.value,
            "seed": self._seed,
        }
        self.checkpoint = tf.train.Checkpoint(**everything)
        folder = os.fspath(folder)
        self._helper_folder = files.join(folder, helper) if helper else None
        self._remove_helper_folder()  # A killed run left it behind.
        self._writer = CheckpointWriter(
            everything,
            self._helper_folder or folder,
            keep=keep,
            asynchronous=asynchronous,
        )

    @property
    def step(self) -> int:
        """The number of updates made so far."""
        return int(self.optimizer.iterations.numpy())

    def facts(self) -> dict[str, str]:
        """Returns step and digests of what a checkpoint holds, by a title."""
        digests = {title: digest_of(v) for title, v in self._values.items()}
        return {"step": str(self.step), **digests}

    def save(self, wait: bool = False) -> None:
        """Writes a checkpoint of the current step, completely or not at all.

        Args:
            wait: bool. Whether to wait for the files, although they are written while
                training goes on.

        Raises:
            DataError: If it cannot be written, or the one before it could not be.
        """
        self._writer.save(self.step, wait)

    def check(self) -> None:
        """Says, once, whether a file being written in the background has failed.

        Raises:
            DataError: If it has.
        """
        self._writer.check()

    def settle(self) -> None:
        """Waits for the files being written; a failure is only logged."""
        try:
            self._writer.wait()
        except DataError as e:
            logging.warning("%s", e)

    def finish(self) -> None:
        """Waits for the files being written, and removes those of a helper.

        Raises:
            DataError: If they cannot be written.
        """
        self._writer.wait()
        self._remove_helper_folder()

    def restore(self, folder: str | os.PathLike) -> int | None:
        """Restores the latest checkpoint that is intact, if there is one.

        Args:
            folder: str. The chief's folder.

        Returns:
            int. The step, or None if there is no checkpoint.

        Raises:
            DataError: If all checkpoints are damaged, or the latest belongs to another
                model.
        """
        found = find_checkpoints(folder)
        seed = int(self._seed.numpy())
        for step, path in found.items():
            try:
                repeated(self._restore, path)
            except (OSError, IndexError, RuntimeError) as e:
                cause = e.__cause__ if isinstance(e, OSError) else e
                reason = reason_of(cause or e)[:200]
                if not _is_damage(cause):
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
            self._writer.last = step if self._helper_folder is None else None
            return step
        if found:
            raise DataError(
                f"{os.fspath(folder)}: every checkpoint is damaged; another "
                "--output_dir begins anew"
            )
        return None

    def _restore(self, path: str) -> None:
        self.checkpoint.restore(streams.literal(path)).assert_consumed()

    def _remove_helper_folder(self) -> None:
        if self._helper_folder:
            files.remove_tree(self._helper_folder)


def _is_damage(error: BaseException | None) -> bool:
    # TensorFlow's reader raises `OpError` itself where it does not know the kind.
    return isinstance(error, _DAMAGES) or type(error) is tf.errors.OpError
