"""Merges the weights of single layers into layers that share nothing.

Other formats hold no such weights, but layers that share nothing. A product
`x W + b + x A B + c` is `x (W + A B) + (b + c)`. The vector that a layer adds to its
input becomes part of what was added before: by the layer norm of the layer below, or
under the first layer by the projection or the layer norm of the embeddings.
"""

import dataclasses
import functools
import math

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.growing import grow
from albert_tf.converters.table import ENCODER, KERNELS, OWN, PROJECTION

# Fields of an encoder without shared weights.
UNSHARED = {
    "sharing": "none",
    "share_layer_norm": True,
    "num_hidden_groups": 1,
    "group_rule": "integer",
}
_NO_DEPTH = {"depth_embedding": False, "depth_rank": 0, "depth_matrices": None}


def for_format(checkpoint: Checkpoint, format: str) -> Checkpoint:
    """Returns the checkpoint as a format without weights of single layers holds it.

    If it has none, it is returned as it is. It must stay open, because tensors are read
    later. Raises `DataError` if one is missing or has another shape.
    """
    if (twin := checkpoint.generator) is not None:
        twin = for_format(twin, format)
        checkpoint = dataclasses.replace(checkpoint, generator=twin)
    old = checkpoint.config
    if not old.has_depth_weights:
        return checkpoint
    result = unfold(checkpoint, old.replace(**UNSHARED))
    notes = [*checkpoint.notes, *notes_on(checkpoint, result, format)]
    return dataclasses.replace(result, notes=notes)


def unfold(checkpoint: Checkpoint, config: AlbertConfig) -> Checkpoint:
    """Returns the checkpoint as one without shared weights, which computes the same.

    `config` keeps the fields that give layers weights of their own.
    """
    grown, ours = grow(checkpoint, config), {}
    for name, tensor in grown.tensors.items():
        if not name.startswith(OWN):
            ours[name] = tensor
    D, r = config.hidden_size, config.depth_rank
    before = "backbone/embeddings/layer_norm/beta"
    if config.has_embedding_projection:
        before = f"{PROJECTION}/bias"
    for row in range(len(config.layer_table())):
        for name, (inputs, outputs) in config.depth_shapes().items():
            layer, own = ENCODER + KERNELS[name].format(row), f"{OWN}{row}/{name}_"
            a = grown.need(f"{own}a", (inputs, r))
            b = grown.need(f"{own}b", (r, outputs))
            c = grown.need(f"{own}bias", (outputs,))
            kernel = grown.need(f"{layer}/kernel", (inputs, outputs))
            ours[f"{layer}/kernel"] = _plus(kernel, a, b)
            ours[f"{layer}/bias"] = _plus(grown.need(f"{layer}/bias", (outputs,)), c)
        if config.depth_embedding:
            own = grown.need(f"{OWN}{row}/input_bias", (D,))
            ours[before] = _plus(grown.need(before, (D,)), own)
            before = f"{ENCODER}ffn_layer_norm_{row}/beta"
    config = config.replace(**_NO_DEPTH)
    return dataclasses.replace(grown, config=config, tensors=ours)


def notes_on(source: Checkpoint, result: Checkpoint, format: str) -> list[str]:
    """Returns notes on the size of an unfolded model, and on its states."""
    notes = [
        f"{format}: {result.config.num_hidden_layers} layers with weights of their "
        f"own, {_size(result)}; in the source they are {_size(source)}"
    ]
    if source.config.depth_embedding:
        notes.append(
            f"{format}: the vectors that layers add to their inputs are part of the "
            "biases before them, so only the last layer's states are the source's"
        )
    return notes


def _size(checkpoint: Checkpoint) -> str:
    count = sum(math.prod(t.shape) for t in checkpoint.tensors.values())
    return f"{count:,} parameters, {4 * count / 1e6:.1f} MB"


def _plus(tensor: Tensor, *factors: Tensor) -> Tensor:
    """Returns a tensor plus a product, rounded once."""

    def read() -> np.ndarray:
        values = (factor.read().astype(np.float64) for factor in factors)
        return (tensor.read() + functools.reduce(np.matmul, values)).astype(np.float32)

    return dataclasses.replace(tensor, read=read)
