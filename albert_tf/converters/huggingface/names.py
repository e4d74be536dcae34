"""Pairs our names of weights with Hugging Face's, for every family and head."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.table import Row, pair
from albert_tf.converters.huggingface.albert import ALBERT
from albert_tf.converters.huggingface.bert import BERT
from albert_tf.converters.huggingface.family import Family

# By `AlbertConfig.family`.
FAMILIES = {"albert": ALBERT, "bert": BERT}
# Buffers that old versions saved.
NO_WEIGHTS = ("embeddings.position_ids", "embeddings.token_type_ids")
_PARTS = (".weight", ".bias")


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
