"""Checkpoints of a training run: weights, optimizer slots, step and seed.

Tensors have the canonical weight names, not names derived from the attributes of Python
objects, so checkpoints stay readable when the code changes.
"""

import os

import keras
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.storage import files
from albert_tf.training.tensorflow.agreement import digest_of


def latest_step(folder: str | os.PathLike) -> int | None:
    """Returns the step of the latest checkpoint in a folder, None without one."""
    latest = tf.train.latest_checkpoint(os.fspath(folder))
    return None if latest is None else int(latest.rpartition("-")[2])


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
        self.checkpoint = tf.train.Checkpoint(
            **self._values,
            step=optimizer.iterations.value,
            seed=self._seed,
        )
        folder = os.fspath(folder)
        self._helper_folder = files.join(folder, helper) if helper else None
        if helper:
            folder = self._helper_folder
            self._remove_helper_folder()  # A killed run left it behind.
        self.manager = tf.train.CheckpointManager(
            self.checkpoint, folder, max_to_keep=keep, checkpoint_name="step"
        )
        self.options = tf.train.CheckpointOptions(
            experimental_enable_async_checkpoint=asynchronous
        )

    @property
    def step(self) -> int:
        """The number of updates made so far."""
        return int(self.optimizer.iterations.numpy())

    def facts(self) -> dict[str, str]:
        """Returns step and digests of what a checkpoint holds, by a title."""
        digests = {title: digest_of(v) for title, v in self._values.items()}
        return {"step": str(self.step), **digests}

    def save(self) -> None:
        """Writes a checkpoint of the current step, completely or not at all."""
        self.manager.save(checkpoint_number=self.step, options=self.options)

    def finish(self) -> None:
        """Waits for the files being written, and removes those of a helper."""
        self.checkpoint.sync()
        self._remove_helper_folder()

    def restore(self, folder: str | os.PathLike) -> int | None:
        """Restores the latest checkpoint, if there is one.

        Args:
            folder: str. The chief's folder.

        Returns:
            int. The step, or None if there is no checkpoint.

        Raises:
            DataError: If the checkpoint is damaged or belongs to another model.
        """
        latest = tf.train.latest_checkpoint(os.fspath(folder))
        if latest is None:
            return None
        seed = int(self._seed.numpy())
        try:
            self.checkpoint.restore(latest).assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as e:
            reason = str(e).splitlines()[0][:200]
            raise DataError(
                f"{latest}: must be a checkpoint of this model and optimizer: {reason}"
            ) from None
        if int(self._seed.numpy()) != seed:
            raise DataError(
                f"{latest}: was trained with --seed={int(self._seed.numpy())}, "
                f"received --seed={seed}"
            )
        return self.step

    def _remove_helper_folder(self) -> None:
        if self._helper_folder and tf.io.gfile.isdir(self._helper_folder):
            tf.io.gfile.rmtree(self._helper_folder)
