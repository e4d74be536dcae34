"""Pairs our names of weights with Hugging Face's, for every family and head."""

import dataclasses
from collections.abc import Callable, Mapping

from albert_tf.config import AlbertConfig
from albert_tf.converters.table import Row, pair

# Buffers that old versions saved.
NO_WEIGHTS = ("embeddings.position_ids", "embeddings.token_type_ids")
_PARTS = (".weight", ".bias")


@dataclasses.dataclass(frozen=True)
class Family:
    """Holds Hugging Face's names for one family; `FAMILIES` lists them all.

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


def _albert_scope(config: AlbertConfig, block: int) -> str:
    number, inner = divmod(block, config.inner_group_num)
    group = config.group_numbers()[number]
    return f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"


# By `AlbertConfig.family`.
FAMILIES = {
    "albert": Family(
        class_prefix="Albert",
        blocks={
            "attention_{}/query": "attention.query",
            "attention_{}/key": "attention.key",
            "attention_{}/value": "attention.value",
            "attention_{}/output": "attention.dense",
            "attention_layer_norm_{}": "attention.LayerNorm",
            "ffn_{}/intermediate": "ffn",
            "ffn_{}/output": "ffn_output",
            "ffn_layer_norm_{}": "full_layer_layer_norm",
        },
        block_scope=_albert_scope,
        pooler="pooler",
        mlm_head="predictions",
        mlm_transform="predictions",
        sop_head="sop_classifier.classifier",
        embedding_projection="encoder.embedding_hidden_mapping_in",
        has_groups=True,
    ),
    "bert": Family(
        class_prefix="Bert",
        blocks={
            "attention_{}/query": "attention.self.query",
            "attention_{}/key": "attention.self.key",
            "attention_{}/value": "attention.self.value",
            "attention_{}/output": "attention.output.dense",
            "attention_layer_norm_{}": "attention.output.LayerNorm",
            "ffn_{}/intermediate": "intermediate.dense",
            "ffn_{}/output": "output.dense",
            "ffn_layer_norm_{}": "output.LayerNorm",
        },
        block_scope=lambda config, block: f"encoder.layer.{block}",
        pooler="pooler.dense",
        mlm_head="cls.predictions",
        mlm_transform="cls.predictions.transform",
        sop_head="cls.seq_relationship",
        config_names={
            "embedding_size": None,
            "num_hidden_groups": None,
            "inner_group_num": None,
            "classifier_dropout_prob": "classifier_dropout",
        },
    ),
}


def name_table(config: AlbertConfig, prefix: str, head: str | None) -> list[Row]:
    """Returns the rows of a model.

    Args:
        config: `AlbertConfig`. A family with groups needs the sharing `"all"`.
        prefix: str. `Family.stem` or, in a bare model, `""`.
        head: str or None. One of `heads.HEADS`, or None for a bare model.
    """
    family = FAMILIES[config.family]
    rows = _encoder(config, family, prefix)
    is_answering = head == "question_answering"
    rows += _dense("classifier", "qa_outputs" if is_answering else "classifier")
    rows += _dense("mlm_head/dense", f"{family.mlm_transform}.dense")
    norm = f"{family.mlm_transform}.LayerNorm"
    rows += pair("mlm_head/layer_norm", norm, *_PARTS)
    rows.append(Row("mlm_head/output_bias", f"{family.mlm_head}.bias"))
    return rows + _dense("sop_head", family.sop_head)


def tied_names(family: Family, prefix: str) -> dict[str, str]:
    """Returns the second names of tied weights and the names they stand for."""
    return {
        f"{family.mlm_head}.decoder.bias": f"{family.mlm_head}.bias",
        f"{family.mlm_head}.decoder.weight": (
            f"{prefix}embeddings.word_embeddings.weight"
        ),
    }


def _encoder(config: AlbertConfig, family: Family, prefix: str) -> list[Row]:
    rows = [
        Row(f"backbone/embeddings/{name}", f"{prefix}embeddings.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ]
    rows += pair(
        "backbone/embeddings/layer_norm", f"{prefix}embeddings.LayerNorm", *_PARTS
    )
    if family.embedding_projection is not None:
        rows += _dense(
            "backbone/encoder/embedding_projection",
            f"{prefix}{family.embedding_projection}",
        )
    blocks = max(row.attention for row in config.layer_table()) + 1
    for block in range(blocks):
        scope = f"{prefix}{family.block_scope(config, block)}"
        for ours, theirs in family.blocks.items():
            name = f"backbone/encoder/{ours.format(block)}"
            rows += _dense(name, f"{scope}.{theirs}")
    return rows + _dense("backbone/pooler", f"{prefix}{family.pooler}")


def _dense(ours: str, theirs: str) -> list[Row]:
    return pair(ours, theirs, *_PARTS, transpose=True)
