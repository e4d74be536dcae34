"""Defines what Hugging Face calls the weights of one family of models."""

import dataclasses
from collections.abc import Callable, Mapping

from albert_tf.config import AlbertConfig


@dataclasses.dataclass(frozen=True)
class Family:
    """Holds Hugging Face's names for one family; `names.FAMILIES` lists them all.

    Args:
        class_prefix: str. What its class names begin with; in lower case, its
            `model_type` and the prefix of the encoder's weights.
        blocks: mapping. Our name of a block's layer, with `{}` for its number, to
            theirs.
        block_scope: callable. From a config and a block's number to the prefix of its
            layers.
        pooler: str. Name of the pooler's dense layer.
        mlm_head: str. Prefix of the masked LM's bias.
        mlm_transform: str. Prefix of the masked LM's dense layer and layer norm.
        sop_head: str. Name of the sentence-order layer.
        embedding_projection: str or None. Name of the layer from E to D, which is
            there even if the two are equal; None if the family never has one.
        has_groups: bool. Whether layers are stored as groups that share weights.
        config_names: mapping. Our names of config fields to theirs, where they differ;
            None for a field that they do not have.
    """

    class_prefix: str
    blocks: Mapping[str, str]
    block_scope: Callable[[AlbertConfig, int], str]
    pooler: str
    mlm_head: str
    mlm_transform: str
    sop_head: str
    embedding_projection: str | None = None
    has_groups: bool = False
    config_names: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    @property
    def model_type(self) -> str:
        """The `model_type` of its config files."""
        return self.class_prefix.lower()

    @property
    def stem(self) -> str:
        """What the encoder's names begin with in a model that has a head."""
        return f"{self.model_type}."
