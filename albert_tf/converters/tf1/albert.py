"""Lists the original's names of ALBERT's weights."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.table import Row
from albert_tf.converters.tf1.family import Family, dense_or_norm

# Under `bert/encoder/transformer/group_g/inner_group_i/`: the feed-forward's output
# stands under `intermediate`, and layer norms carry default scope names.
_BLOCK = {
    "attention_{}/query": "attention_1/self/query",
    "attention_{}/key": "attention_1/self/key",
    "attention_{}/value": "attention_1/self/value",
    "attention_{}/output": "attention_1/output/dense",
    "attention_layer_norm_{}": "LayerNorm",
    "ffn_{}/intermediate": "ffn_1/intermediate/dense",
    "ffn_{}/output": "ffn_1/intermediate/output/dense",
    "ffn_layer_norm_{}": "LayerNorm_1",
}


def _blocks(config: AlbertConfig) -> list[Row]:
    shared_norms, rows = config.share_layer_norm, []
    blocks = max(row.attention for row in config.layer_table()) + 1
    for block in range(blocks):
        number, inner = divmod(block, config.inner_group_num)
        group = config.group_numbers()[number]
        scope = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        for ours, theirs in _BLOCK.items():
            if shared_norms or "norm" not in ours:
                name = f"encoder/{ours.format(block)}"
                rows += dense_or_norm(name, f"{scope}/{theirs}")
    if shared_norms:
        return rows
    entered: dict[int, int] = {}
    for number, row in enumerate(config.layer_table()):
        layer, inner = divmod(number, config.inner_group_num)
        group = config.group_numbers()[row.attention // config.inner_group_num]
        if inner == 0:
            # TensorFlow numbers a name scope that is entered again.
            entered[group] = entered.get(group, -1) + 1
        suffix = f"_{entered[group]}" if entered[group] else ""
        scope = (
            f"bert/encoder/transformer/group_{group}{suffix}/layer_{layer}/"
            f"inner_group_{inner}/layer_normalization"
        )
        for part, which in (("attention", 2 * number + 1), ("ffn", 2 * number + 2)):
            name = f"encoder/{part}_layer_norm_{number}"
            rows += dense_or_norm(name, f"{scope}_{which}")
    return rows


ALBERT = Family(config_file="albert_config.json", blocks=_blocks, has_groups=True)
