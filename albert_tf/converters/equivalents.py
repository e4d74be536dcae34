"""Describes models in other terms, which do not change their outputs."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from albert_tf.config import DEPTH_FIELDS, AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.converters.table import DENSE, PROJECTION
from albert_tf.errors import UsageError


def as_groups(config: AlbertConfig, format: str, rule: str) -> AlbertConfig:
    """Describes a model as ALBERT's config does, by groups of equal layers.

    The config has the sharing `"all"` and the `group_rule` of the format; each layer
    that shares nothing becomes a group of its own. The names of the weights do not
    change. Raises `UsageError` if the model cannot be described that way.
    """
    if config.sharing == "none":
        layers = config.num_hidden_layers
        config = config.replace(
            sharing="all", num_hidden_groups=layers, share_layer_norm=True
        )
    if config.sharing != "all":
        raise UsageError(f"{format} cannot express sharing={config.sharing!r}")
    table = config.layer_table()
    config = config.replace(group_rule=rule)
    if config.layer_table() != table:
        raise UsageError(
            f"{format} would give some of {config.num_hidden_layers} layers another "
            f"of {config.num_hidden_groups} groups"
        )
    return config


def read_groups(config: AlbertConfig, rule: str) -> AlbertConfig:
    """Sets a format's group rule in a config, if it makes a difference."""
    other = config.replace(group_rule=rule)
    return config if config.layer_table() == other.layer_table() else other


def fold_projection(checkpoint: Checkpoint) -> None:
    """Removes a projection that is the identity, and adapts the config.

    Hugging Face and KerasHub project even if E = D; the original does not.
    """
    config, ours, kind = checkpoint.config, checkpoint.tensors, "auto"
    kernel, bias = (ours.get(f"{PROJECTION}/{part}") for part in DENSE)
    is_there = kernel is not None and bias is not None
    if config.embedding_size == config.hidden_size and is_there:
        identity = np.eye(config.hidden_size, dtype=np.float32)
        if bias.read().any() or not np.array_equal(kernel.read(), identity):
            kind = "always"
        else:
            for part in DENSE:
                del ours[f"{PROJECTION}/{part}"]
    checkpoint.config = config.replace(embedding_projection=kind)


def unfold_projection(
    config: AlbertConfig, ours: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the tensors with an identity added if there is no projection."""
    ours, size = dict(ours), config.hidden_size
    if not config.has_embedding_projection:
        for part, value in (("kernel", np.eye(size)), ("bias", np.zeros(size))):
            name = f"{PROJECTION}/{part}"
            ours[name] = Tensor.of(name, value.astype(np.float32))
    return ours


def differences(old: AlbertConfig, new: AlbertConfig) -> dict[str, str]:
    """Returns the fields in which configs differ, each with both values in words."""
    before, after = dataclasses.asdict(old), dataclasses.asdict(new)
    return {
        name: f"{name}={before[name]!r}, not {after[name]!r}"
        for name in before
        if before[name] != after[name]
    }


def is_new(field: str, config: AlbertConfig) -> bool:
    """Returns whether a field gives layers weights that a model has none of yet.

    They start as nothing: with them, the model computes the same.
    """
    rank = config.depth_rank
    old = {"depth_embedding": config.depth_embedding, "depth_matrices": rank}
    return field in DEPTH_FIELDS and not old.get(field, rank)
