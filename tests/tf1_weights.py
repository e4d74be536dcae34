"""Reads and writes checkpoints as the original does."""

import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf


def golden_batch(stored: Mapping, prefix: str = "in/") -> dict[str, np.ndarray]:
    """Returns the inputs and targets that a golden file holds, by our names."""
    names = {
        "token_ids": "input_ids",
        "segment_ids": "segment_ids",
        "padding_mask": "input_mask",
        "mask_positions": "masked_lm_positions",
        "mask_ids": "masked_lm_ids",
        "mask_weights": "masked_lm_weights",
    }
    batch = {k: stored[prefix + v] for k, v in names.items() if prefix + v in stored}
    if f"{prefix}next_sentence_labels" in stored:
        batch["sentence_order_labels"] = stored[f"{prefix}next_sentence_labels"][:, 0]
    return batch


def draw_checkpoint(description: pathlib.Path, prefix: str | os.PathLike) -> None:
    """Writes a checkpoint of initial weights, drawn by the original's own operation.

    The weights of a vocabulary of 30,000 are too large to store. TensorFlow still
    draws what 1.15 drew from the same two seeds.

    Args:
        description: path. JSON: `graph_seed`, `stddev`, and `variables` by name, each
            with `shape` and either `value` (a constant) or `op_seed` and `sum`.
        prefix: path. The checkpoint to write.
    """
    initial = json.loads(description.read_text())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, one in initial["variables"].items():
            if "value" in one:
                value = tf.fill(one["shape"], one["value"])
            else:
                seeds = {"seed": initial["graph_seed"], "seed2": one["op_seed"]}
                drawn = tf.raw_ops.TruncatedNormal(
                    shape=one["shape"], dtype=tf.float32, **seeds
                )
                value = drawn * initial["stddev"]
            tf.compat.v1.get_variable(name, initializer=value, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, os.fspath(prefix), write_meta_graph=False)


def save_tensors(prefix: str | os.PathLike, tensors: Mapping) -> None:
    """Writes a checkpoint as `tf.train.Saver` does."""
    tf.raw_ops.SaveV2(
        prefix=os.fspath(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )


def stored_tensors(prefix: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns all tensors of a checkpoint by name."""
    reader = tf.train.load_checkpoint(os.fspath(prefix))
    return {k: reader.get_tensor(k) for k in reader.get_variable_to_shape_map()}
