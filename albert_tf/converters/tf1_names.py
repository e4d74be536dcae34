"""Pairs our names of weights with the original's, and reads variants of those."""

import re
from collections.abc import Mapping

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Tensor
from albert_tf.converters.table import Row, as_groups, rows_of

_KERNEL = ("/kernel", "/bias")
_NORM = ("/gamma", "/beta")
_HEADS = {
    "pretraining": "cls/seq_relationship/output_{}",
    "question_answering": "cls/squad/output_{}",
    None: "output_{}",
}
# The head of `create_v2_model`, which has scopes of layers.
_BEAM = {
    "start_head": "start_logits/dense",
    "end_head/dense_0": "end_logits/dense_0",
    "end_head/layer_norm": "end_logits/LayerNorm",
    "end_head/dense_1": "end_logits/dense_1",
    "answer_head/dense_0": "answer_class/dense_0",
}
# Optimizer slots, counters, and Keras's bookkeeping in exports.
NO_WEIGHTS = re.compile(
    r"(^|/)(global_step|beta[12]_power|learning_rate|loss_scale|good_steps"
    r"|current_loss_scale|checkpoint_initializer\w*)(/|$)"
    r"|/(adam_[mv]|Adam(_\d+)?|adam[mv]|lamb_[mv]|Momentum|LAMB(_\d+)?"
    r"|LAMBOptimizer(_\d+)?|AdamWeightDecayOptimizer(_\d+)?)$"
    r"|^_CHECKPOINTABLE_OBJECT_GRAPH$|^save_counter"
)
# Layer norms that are not shared, which Keras numbered over the whole graph; see
# google-research/albert issue 241.
OWN_NORMS = re.compile(r"/inner_group_\d+/layer_normalization(_\d+)?/")
# Under `bert/encoder/transformer/group_g/inner_group_i/`: the feed-forward's output
# stands under `intermediate`, and layer norms carry default scope names.
_ALBERT_BLOCK = {
    "attention_{}/query": "attention_1/self/query",
    "attention_{}/key": "attention_1/self/key",
    "attention_{}/value": "attention_1/self/value",
    "attention_{}/output": "attention_1/output/dense",
    "attention_layer_norm_{}": "LayerNorm",
    "ffn_{}/intermediate": "ffn_1/intermediate/dense",
    "ffn_{}/output": "ffn_1/intermediate/output/dense",
    "ffn_layer_norm_{}": "LayerNorm_1",
}
BERT_BLOCK = {
    "attention_{}/query": "attention/self/query",
    "attention_{}/key": "attention/self/key",
    "attention_{}/value": "attention/self/value",
    "attention_{}/output": "attention/output/dense",
    "attention_layer_norm_{}": "attention/output/LayerNorm",
    "ffn_{}/intermediate": "intermediate/dense",
    "ffn_{}/output": "output/dense",
    "ffn_layer_norm_{}": "output/LayerNorm",
}


def _albert_blocks(config: AlbertConfig) -> dict[str, str]:
    shared_norms, layers = config.share_layer_norm, {}
    blocks = max(row.attention for row in config.layer_table()) + 1
    for block in range(blocks):
        number, inner = divmod(block, config.inner_group_num)
        group = config.group_numbers()[number]
        scope = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        for ours, theirs in _ALBERT_BLOCK.items():
            if shared_norms or "norm" not in ours:
                layers[f"backbone/encoder/{ours.format(block)}"] = f"{scope}/{theirs}"
    if shared_norms:
        return layers
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
            layers[f"backbone/encoder/{part}_layer_norm_{number}"] = f"{scope}_{which}"
    return layers


def _bert_blocks(config: AlbertConfig) -> dict[str, str]:
    return {
        f"backbone/encoder/{ours.format(layer)}": f"bert/encoder/layer_{layer}/{theirs}"
        for layer in range(config.num_hidden_layers)
        for ours, theirs in BERT_BLOCK.items()
    }


def name_table(config: AlbertConfig, head: str | None = "pretraining") -> list[Row]:
    """Returns the rows of the encoder and its heads, in the original's names.

    Args:
        config: `AlbertConfig`.
        head: str or None. Head whose weights are named; the masked LM's are in every
            table. A classifier of texts, tokens or choices has the same names.
    """
    has_groups, has_shared_norms = config.family == "albert", config.share_layer_norm
    if has_groups:
        config = as_groups(config, "tf1", "original")
        config = config.replace(share_layer_norm=has_shared_norms)
    norm = "LayerNorm" if has_shared_norms else "layer_normalization"
    rows = [
        Row(f"backbone/embeddings/{name}", f"bert/embeddings/{name}")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ]
    layers = {"backbone/embeddings/layer_norm": f"bert/embeddings/{norm}"}
    if config.has_embedding_projection:
        mapping = "bert/encoder/embedding_hidden_mapping_in"
        layers["backbone/encoder/embedding_projection"] = mapping
    layers |= _albert_blocks(config) if has_groups else _bert_blocks(config)
    transform = "cls/predictions/transform"
    last = 2 * len(config.layer_table()) + 1
    norm = "LayerNorm" if has_shared_norms else f"layer_normalization_{last}"
    layers["backbone/pooler"] = "bert/pooler/dense"
    layers["mlm_head/dense"] = f"{transform}/dense"
    layers["mlm_head/layer_norm"] = f"{transform}/{norm}"
    rows += rows_of(layers, _KERNEL, _NORM)
    rows.append(Row("mlm_head/output_bias", "cls/predictions/output_bias"))
    if head == "beam_question_answering":
        return rows + beam_rows()
    ours = "sop_head" if head == "pretraining" else "classifier"
    theirs = _HEADS.get(head, _HEADS[None])
    rows.append(Row(f"{ours}/kernel", theirs.format("weights"), transpose=True))
    rows.append(Row(f"{ours}/bias", theirs.format("bias")))
    return rows


def beam_rows() -> list[Row]:
    """Returns the rows of the SQuAD 2.0 head."""
    # The last layer has no bias.
    kernel = Row("answer_head/dense_1/kernel", "answer_class/dense_1/kernel")
    return [*rows_of(_BEAM, _KERNEL, _NORM), kernel]


def without_scope(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Strips the scope before `bert/` from the names in a checkpoint.

    TF-Hub modules loaded into a model have the scope `module/`, and TensorFlow 2's
    converters of TensorFlow 1 models keep such scopes too.
    """
    inside = next((name for name in stored if "/bert/embeddings/" in name), "")
    scope = inside.partition("bert/embeddings/")[0]
    return {name.removeprefix(scope): tensor for name, tensor in stored.items()}
