"""Lists the original's names of BERT's weights."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.table import Row
from albert_tf.converters.tf1.family import Family, dense_or_norm

_BLOCK = {
    "attention_{}/query": "attention/self/query",
    "attention_{}/key": "attention/self/key",
    "attention_{}/value": "attention/self/value",
    "attention_{}/output": "attention/output/dense",
    "attention_layer_norm_{}": "attention/output/LayerNorm",
    "ffn_{}/intermediate": "intermediate/dense",
    "ffn_{}/output": "output/dense",
    "ffn_layer_norm_{}": "output/LayerNorm",
}


def _blocks(config: AlbertConfig) -> list[Row]:
    return [
        row
        for layer in range(config.num_hidden_layers)
        for ours, theirs in _BLOCK.items()
        for row in dense_or_norm(
            f"encoder/{ours.format(layer)}", f"bert/encoder/layer_{layer}/{theirs}"
        )
    ]


BERT = Family(
    config_file="bert_config.json",
    blocks=_blocks,
    missing_fields=("embedding_size", "num_hidden_groups", "inner_group_num"),
)
