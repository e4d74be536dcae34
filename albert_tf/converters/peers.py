"""Runs the libraries that checkpoints are for, where they are installed."""

import importlib.util

import numpy as np

from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.huggingface import format as huggingface
from albert_tf.converters.huggingface.peer import run_transformers
from albert_tf.converters.keras_hub import format as keras_hub
from albert_tf.converters.keras_hub.peer import run_keras_hub


def run(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Outputs of the library a checkpoint is for.

    Args:
        checkpoint: What `path` holds.
        path: Of the folder.
        batch: Of `parity.make_batch`.

    Returns:
        Outputs named as by `parity.outputs_of`; None if there is no such library, or
        it is not installed.
    """
    if checkpoint.format == huggingface.NAME and _installed("transformers", "torch"):
        return run_transformers(checkpoint, path, batch)
    if checkpoint.format == keras_hub.NAME and _installed("keras_hub"):
        return run_keras_hub(checkpoint, path, batch)
    return None


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)
