"""Runs KerasHub on a converted preset."""

from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.heads import find

NEEDS = ("keras_hub",)


def run(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through KerasHub.

    Args:
        checkpoint: `Checkpoint`. What `path` holds.
        path: str. Path of the folder.
        batch: dict. Inputs, from `parity.make_batch`.

    Returns:
        dict. Outputs, named as by `parity.outputs_of`.
    """
    import keras
    import keras_hub

    cls = getattr(keras_hub.models, find(checkpoint.head).keras_hub_class)
    options = {} if checkpoint.head is None else {"preprocessor": None}
    model = cls.from_preset(path, **options)
    if find(checkpoint.head).has_masked_lm:
        rows, length = batch[features.TOKEN_IDS].shape
        positions = np.tile(np.arange(length), (rows, 1))
        batch = {**batch, features.MASK_POSITIONS: positions}
    out = model(batch)
    if checkpoint.head is not None:
        return {"logits": keras.ops.convert_to_numpy(out)}
    last = f"layer {len(checkpoint.config.layer_table())}"
    values = {last: out["sequence_output"], "pooler": out["pooled_output"]}
    return {name: keras.ops.convert_to_numpy(value) for name, value in values.items()}


def tokenize(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that KerasHub's tokenizer gives to texts."""
    import keras_hub

    tokenizer = keras_hub.tokenizers.AlbertTokenizer.from_preset(path)
    return [[int(i) for i in tokenizer(text)] for text in texts]
