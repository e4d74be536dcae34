"""Loads the golden checkpoints of the original into a model, strictly."""

import os

import keras
import tensorflow as tf

from albert_tf.converters.tf1.names import name_table
from albert_tf.models.base import weight_names


def load_golden_weights(model: keras.Model, prefix: str | os.PathLike) -> None:
    """Assigns the tensors of a checkpoint to an `AlbertPretrainer`."""
    reader = tf.train.load_checkpoint(os.fspath(prefix))
    rows = {row.ours: row for row in name_table(model.config)}
    for name, variable in weight_names(model).items():
        value = rows[name].turn(reader.get_tensor(rows[name].theirs))
        assert value.shape == tuple(variable.shape), name
        variable.assign(value)
