"""Checkpoints of a training run: weights, optimizer slots, step and seed.

Their names are the canonical weight names, not the attributes of Python objects, so
they stay readable when the code changes.
"""

import os

import keras
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.storage import files


class TrainingCheckpoints:
    """Saves and restores a run.

    Everything random in a run is a function of its seed and the step (the order of the
    examples, their masks, dropout), so with these two a restored run continues
    exactly as if it had not stopped.

    Args:
        folder: Where to.
        model, optimizer: Of the run; the optimizer is built.
        seed: int. The run's.
        keep: int. Older checkpoints than the last `keep` are removed.
        asynchronous: bool. Whether training goes on while a file is written.
        chief: bool. False in the other workers of a run on several machines, which
            must take part in saving but leave nothing behind.
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
        chief: bool = True,
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
        self.checkpoint = tf.train.Checkpoint(
            weights={k: v.value for k, v in weights.items()},
            slots={k: v.value for k, v in slots.items()},
            step=optimizer.iterations.value,
            seed=self._seed,
        )
        folder = os.fspath(folder)
        if not chief:
            folder = files.join(folder, f"worker-{os.getpid()}")
        self.manager = tf.train.CheckpointManager(
            self.checkpoint, folder, max_to_keep=keep, checkpoint_name="step"
        )
        self.options = tf.train.CheckpointOptions(
            experimental_enable_async_checkpoint=asynchronous
        )
        self.chief = chief

    @property
    def step(self) -> int:
        """Number of updates made so far."""
        return int(self.optimizer.iterations.numpy())

    def save(self) -> None:
        """Writes a checkpoint of the present step; complete, or not there at all."""
        self.manager.save(checkpoint_number=self.step, options=self.options)

    def finish(self) -> None:
        """Waits for a save under way, and removes what a helper worker wrote."""
        self.checkpoint.sync()
        if not self.chief and tf.io.gfile.isdir(self.manager.directory):
            tf.io.gfile.rmtree(self.manager.directory)

    def restore(self, folder: str | os.PathLike) -> int | None:
        """Restores the latest checkpoint, if there is one.

        Args:
            folder: The chief's folder.

        Returns:
            The step, or None if there is no checkpoint.

        Raises:
            DataError: If the checkpoint is of another model or broken.
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
                f"{latest}: not a checkpoint of this model and optimizer: {reason}"
            ) from None
        if int(self._seed.numpy()) != seed:
            raise DataError(
                f"{latest}: was trained with --seed={int(self._seed.numpy())}, "
                f"received --seed={seed}"
            )
        return self.step
