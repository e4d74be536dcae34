"""Defines what the original calls the weights of one family of models."""

import dataclasses
from collections.abc import Callable

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.table import Row, pair

KERNEL = ("/kernel", "/bias")
NORM = ("/gamma", "/beta")


@dataclasses.dataclass(frozen=True)
class Family:
    """Holds the original's names for one family; `names.FAMILIES` lists them all.

    Args:
        config_file: str. Name of the config file.
        blocks: callable. From a config to the rows of all blocks.
        has_groups: bool. Whether layers are stored as groups that share weights.
        missing_fields: tuple of str. Config fields that its files do not have.
    """

    config_file: str
    blocks: Callable[[AlbertConfig], list[Row]]
    has_groups: bool = False
    missing_fields: tuple[str, ...] = ()


def dense_or_norm(ours: str, theirs: str) -> list[Row]:
    """Returns the rows of a layer of the backbone."""
    parts = NORM if "norm" in ours else KERNEL
    return pair(f"backbone/{ours}", theirs, *parts)
