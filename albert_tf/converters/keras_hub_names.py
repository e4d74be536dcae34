"""Paths in KerasHub's HDF5 files.

Keras names a layer's group by its class and a count (`dense_1`), not by its own name.
Files of an earlier Keras have other private names (`_query_dense`) and another top
group; `standard_path` takes both.
"""

import re

from albert_tf.config import AlbertConfig
from albert_tf.converters.table import Row, pair

# Stands before the paths of `task.weights.h5`.
TASK = "task:"
# Within the group of a layer, the kernel or gamma is first.
_VARS = ("/vars/0", "/vars/1")
NO_WEIGHTS = re.compile(r"(^|/|:)(optimizer|preprocessor|seed_generator)/")
_EARLIER_TOP = "_layer_checkpoint_dependencies"
_ATTENTION = "_self_attention_layer"
# The attributes of KerasHub's models that hold these layers.
_ATTRIBUTES = {
    "reversible_embedding": "token_embedding",
    "position_embedding": "position_embedding",
    "embedding": "segment_embedding",
    "layer_normalization": "embeddings_layer_norm",
    "dense": "embeddings_projection",
    "dense_1": "pooled_dense",
}
_BLOCK = {
    "attention_layer_norm_{}": "_self_attention_layer_norm",
    "ffn_{}/intermediate": "_feedforward_intermediate_dense",
    "ffn_{}/output": "_feedforward_output_dense",
    "ffn_layer_norm_{}": "_feedforward_layer_norm",
}


def name_table(config: AlbertConfig, head: str | None) -> list[Row]:
    """Returns the rows of the backbone and the heads that KerasHub has.

    Args:
        config: `AlbertConfig`. Its sharing is `"all"`.
        head: str or None. `"masked_lm"` or `"text_classifier"`.
    """
    rows = [
        Row(f"backbone/embeddings/{ours}", f"layers/{theirs}/vars/0")
        for ours, theirs in (
            ("word_embeddings", "reversible_embedding"),
            ("position_embeddings", "position_embedding"),
            ("token_type_embeddings", "embedding"),
        )
    ]
    rows += pair("backbone/embeddings/layer_norm", "layers/layer_normalization", *_VARS)
    rows += pair("backbone/encoder/embedding_projection", "layers/dense", *_VARS)
    blocks = config.num_hidden_groups * config.inner_group_num
    for block in range(blocks):
        rows += _block(config, block)
    rows += pair("backbone/pooler", "layers/dense_1", *_VARS)
    if head == "masked_lm":
        stem = f"{TASK}layers/masked_lm_head"
        rows += pair("mlm_head/dense", f"{stem}/_intermediate_dense", *_VARS)
        rows += pair("mlm_head/layer_norm", f"{stem}/_intermediate_layer_norm", *_VARS)
        rows.append(Row("mlm_head/output_bias", f"{stem}/vars/0"))
    elif head == "text_classifier":
        rows += pair("classifier", f"{TASK}layers/dense", *_VARS)
    return rows


def standard_path(path: str) -> str:
    """Returns a path without the parts that differ between versions of Keras."""
    top, _, rest = path.partition("/")
    top = top.replace(_EARLIER_TOP, "layers")
    return "/".join(part.lstrip("_") for part in (top, *rest.split("/")))


def find_variable(model, config: AlbertConfig, path: str):
    """Returns the variable that KerasHub saves under a path of `name_table`.

    Args:
        model: keras.Model. KerasHub's backbone, or its model with a head.
        config: `AlbertConfig`. As for `name_table`.
        path: str. The path.
    """
    _, name, *inner, _, number = path.split("/")
    if path.startswith(TASK):
        layer = model.output_dense if name == "dense" else getattr(model, name)
    else:
        backbone = getattr(model, "backbone", model)
        if name.startswith("transformer_encoder"):
            block = int(name.removeprefix("transformer_encoder").strip("_") or 0)
            group, place = divmod(block, config.inner_group_num)
            layer = backbone.transformer_layers[group][place]
        else:
            layer = getattr(backbone, _ATTRIBUTES[name])
    for part in inner:
        layer = getattr(layer, part if hasattr(layer, part) else f"_{part}")
    return layer.trainable_variables[int(number)]


def _block(config: AlbertConfig, block: int) -> list[Row]:
    stem = "layers/transformer_encoder" + (f"_{block}" if block else "")
    encoder = "backbone/encoder"
    rows = []
    for ours, theirs in _BLOCK.items():
        rows += pair(f"{encoder}/{ours.format(block)}", f"{stem}/{theirs}", *_VARS)
    D, N, H = config.hidden_size, config.num_attention_heads, config.head_size
    for part in ("query", "key", "value", "output"):
        ours = f"{encoder}/attention_{block}/{part}"
        theirs = f"{stem}/{_ATTENTION}/{part}_dense/vars"
        kernel, bias = ((D, N, H), (N, H)) if part != "output" else ((N, H, D), (D,))
        rows.append(Row(f"{ours}/kernel", f"{theirs}/0", shapes=((D, D), kernel)))
        rows.append(Row(f"{ours}/bias", f"{theirs}/1", shapes=((D,), bias)))
    return rows
