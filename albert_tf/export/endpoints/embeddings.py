"""Defines the signatures that turn texts into vectors.

Legend: `B` batch, `T` sequence, `D` hidden, `L` layers.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.export.endpoints.row_steps import run_padded
from albert_tf.export.endpoints.signature import Signature, ints, strings, texts
from albert_tf.export.endpoints.text_inputs import TextInputs
from albert_tf.models.backbone import AlbertBackbone


def make_embedder(backbone: AlbertBackbone) -> Callable:
    """Returns a function from model inputs to the vectors of texts, float32 `[B, D]`.

    These are `mean_output`, the mean of the last layer over the real tokens,
    `cls_output`, the last layer's vector of `[CLS]`, and, if there is a pooler,
    `pooled_output`.
    """
    names = ["mean_output", "cls_output"]
    names += ["pooled_output"] if backbone.pooler is not None else []

    def run(inputs):
        outputs = backbone(inputs, training=False)
        result = _pooled(outputs["sequence_output"], inputs)
        if "pooled_output" in outputs:
            result["pooled_output"] = tf.cast(outputs["pooled_output"], tf.float32)
        return result

    return lambda inputs: run_padded(run, inputs, _no_vectors(backbone, names))


def embed_layer_signature(
    backbone: AlbertBackbone, text_inputs: TextInputs
) -> Signature:
    """Returns `embed_layer(text, layer)`: the vectors of texts after any layer.

    `layer` is int32 `[B]`, one for each text, as a server that joins requests needs it:
    0 for the embeddings (projected to `D`), `L` for the last layer. Negative numbers
    count from the end, -1 is the last layer. The answer is `mean_output` and
    `cls_output`, float32 `[B, D]`. When run, it raises an InvalidArgumentError if a
    layer is out of range.
    """
    num_layers = backbone.config.num_hidden_layers

    def embed_layer(text, layer):
        inside = (layer >= -num_layers - 1) & (layer <= num_layers)
        message = f"layer: from {-num_layers - 1} to {num_layers}, received"
        checks = [
            tf.debugging.Assert(
                tf.size(layer) == tf.size(text), ["layer: expected one for each text"]
            ),
            tf.debugging.Assert(tf.reduce_all(inside), [message, layer]),
        ]
        with tf.control_dependencies(checks):
            layer = tf.where(layer < 0, layer + num_layers + 1, layer)
        nothing = _no_vectors(backbone, ["mean_output", "cls_output"])
        return run_padded(run, text_inputs(text), nothing, layer=layer)

    def run(inputs, layer):
        outputs = backbone(inputs, training=False, output_hidden_states=True)
        states = [_pooled(x, inputs) for x in outputs["hidden_states"]]
        return {
            name: tf.gather(tf.stack([x[name] for x in states], 1), layer, batch_dims=1)
            for name in states[0]
        }

    return Signature(embed_layer, (strings("text"), ints("layer", 1)), _request)


def _no_vectors(backbone, names: list[str]) -> dict[str, tf.Tensor]:
    return {name: tf.zeros([0, backbone.config.hidden_size]) for name in names}


def _pooled(x: tf.Tensor, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the vectors of the rows of `x` `[B, T, D]`, float32 `[B, D]`."""
    x = tf.cast(x, tf.float32)
    mask = tf.cast(inputs[features.PADDING_MASK], tf.float32)
    total = tf.einsum("btd,bt->bd", x, mask)
    return {
        "mean_output": total / tf.reduce_sum(mask, -1, keepdims=True),
        "cls_output": x[:, 0],
    }


def _request(length: int, size: int) -> dict[str, np.ndarray]:
    return {"text": texts(length, size), "layer": np.full(size, -1, np.int32)}
