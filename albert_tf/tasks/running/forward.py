"""Compiles a model into the function that evaluation calls."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.tasks.running.outputs import Forward, input_ranks


def as_forward(model: keras.Model, head: str) -> Forward:
    """Returns a function from a batch of arrays to the outputs, as arrays.

    One graph serves batches of any size. Run eagerly, a model would keep every layer's
    hidden states and attention maps until the call returns.

    Args:
        model: keras.Model. Takes the inputs of `outputs.input_ranks`.
        head: str. Name of its head.
    """
    ranks = input_ranks(head)

    def call(batch):
        return model(batch, training=False)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = {n: tf.TensorSpec([None] * rank, tf.int32) for n, rank in ranks.items()}
        call = tf.function(call, input_signature=[spec])

    def forward(batch: Mapping[str, np.ndarray]) -> Any:
        tensors = {n: keras.ops.convert_to_tensor(batch[n], "int32") for n in ranks}
        return keras.tree.map_structure(keras.ops.convert_to_numpy, call(tensors))

    return forward
