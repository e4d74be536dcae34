"""Lists Hugging Face's names of ALBERT's weights."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.huggingface.family import Family


def _block_scope(config: AlbertConfig, block: int) -> str:
    number, inner = divmod(block, config.inner_group_num)
    group = config.group_numbers()[number]
    return f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"


ALBERT = Family(
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
    block_scope=_block_scope,
    pooler="pooler",
    mlm_head="predictions",
    mlm_transform="predictions",
    sop_head="sop_classifier.classifier",
    embedding_projection="encoder.embedding_hidden_mapping_in",
    has_groups=True,
)
