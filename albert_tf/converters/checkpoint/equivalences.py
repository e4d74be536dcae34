"""Rewrites a model in the terms of another format without changing its outputs."""

from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.checkpoint import Tensor
from albert_tf.errors import UsageError

_PROJECTION = "backbone/encoder/embedding_projection"


def as_groups(config: AlbertConfig, format: str, rule: str) -> AlbertConfig:
    """Describes a model as ALBERT's config does, by groups of equal layers.

    Args:
        config: `AlbertConfig`. The model.
        format: str. Name of the format, for errors.
        rule: str. The `group_rule` of the format.

    Returns:
        A config with the sharing `"all"`. Each layer that shares nothing becomes a
        group of its own. The names of the weights do not change.

    Raises:
        UsageError: If the model cannot be described that way.
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
    """Sets a format's group rule in a config that was read, if it matters."""
    other = config.replace(group_rule=rule)
    return config if config.layer_table() == other.layer_table() else other


def fold_projection(config: AlbertConfig, ours: dict[str, Tensor]) -> AlbertConfig:
    """Removes a projection that is the identity.

    Hugging Face and KerasHub project even if E = D; the original does not.

    Args:
        config: `AlbertConfig`. The config that was read.
        ours: dict. Tensors by canonical name; changed in place.

    Returns:
        The config that describes the remaining tensors.
    """
    if config.embedding_size != config.hidden_size:
        return config.replace(embedding_projection="auto")
    kernel, bias = (ours.get(f"{_PROJECTION}/{part}") for part in ("kernel", "bias"))
    if kernel is None or bias is None:
        return config.replace(embedding_projection="auto")
    identity = np.eye(config.hidden_size, dtype=np.float32)
    if bias.read().any() or not np.array_equal(kernel.read(), identity):
        return config.replace(embedding_projection="always")
    for part in ("kernel", "bias"):
        del ours[f"{_PROJECTION}/{part}"]
    return config.replace(embedding_projection="auto")


def unfold_projection(
    config: AlbertConfig, ours: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the tensors with an identity added if there is no projection."""
    ours, size = dict(ours), config.hidden_size
    if not config.has_embedding_projection:
        for part, value in (("kernel", np.eye(size)), ("bias", np.zeros(size))):
            name = f"{_PROJECTION}/{part}"
            ours[name] = Tensor.of(name, value.astype(np.float32))
    return ours
