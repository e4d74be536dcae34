"""The original's names of ALBERT's and BERT's weights, and their variants."""

import re
from collections.abc import Iterable

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.equivalences import as_groups, is_bert
from albert_tf.converters.checkpoint.table import Row, pair

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
_BERT_BLOCK = {
    "attention_{}/query": "attention/self/query",
    "attention_{}/key": "attention/self/key",
    "attention_{}/value": "attention/self/value",
    "attention_{}/output": "attention/output/dense",
    "attention_layer_norm_{}": "attention/output/LayerNorm",
    "ffn_{}/intermediate": "intermediate/dense",
    "ffn_{}/output": "output/dense",
    "ffn_layer_norm_{}": "output/LayerNorm",
}
_KERNEL = ("/kernel", "/bias")
_NORM = ("/gamma", "/beta")
_HEADS = {
    "pretraining": "cls/seq_relationship/output_{}",
    "question_answering": "cls/squad/output_{}",
    None: "output_{}",
}
# Optimizer slots and counters; Keras' own bookkeeping in exports.
NO_WEIGHTS = re.compile(
    r"(^|/)(global_step|beta[12]_power|learning_rate|loss_scale|good_steps"
    r"|current_loss_scale|checkpoint_initializer\w*)(/|$)"
    r"|/(adam_[mv]|Adam(_\d+)?|adam[mv]|lamb_[mv]|Momentum|LAMB(_\d+)?"
    r"|LAMBOptimizer(_\d+)?|AdamWeightDecayOptimizer(_\d+)?)$"
    r"|^_CHECKPOINTABLE_OBJECT_GRAPH$|^save_counter"
)
# SQuAD 2's beam head, which no model here has.
BEAM_HEAD = re.compile(r"^(start_logits|end_logits|answer_class)/")
_UNSHARED = re.compile(
    r"^(?P<scope>bert/encoder/transformer/group_\d+(_\d+)?/layer_(?P<layer>\d+)/"
    r"inner_group_(?P<inner>\d+))/layer_normalization(_(?P<number>\d+))?/"
    r"(?P<part>gamma|beta)$"
)
_KERAS_NORM = re.compile(
    r"^(bert/embeddings|cls/predictions/transform)/layer_normalization(_\d+)?/"
)


def name_table(config: AlbertConfig, head: str | None = "pretraining") -> list[Row]:
    """Rows for the encoder and heads, in the original's names.

    Args:
        config: `AlbertConfig`.
        head: Whose output weights and bias to name; every table has the masked LM's.
    """
    bert = is_bert(config)
    shared_norms = config.share_layer_norm
    if not bert:
        config = as_groups(config, "tf1", "original")
    norm = "LayerNorm" if shared_norms else "layer_normalization"
    rows = [
        Row(f"backbone/embeddings/{name}", f"bert/embeddings/{name}")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ]
    rows += pair("backbone/embeddings/layer_norm", f"bert/embeddings/{norm}", *_NORM)
    if config.has_embedding_projection:
        rows += pair(
            "backbone/encoder/embedding_projection",
            "bert/encoder/embedding_hidden_mapping_in",
            *_KERNEL,
        )
    rows += _bert_blocks(config) if bert else _blocks(config, shared_norms)
    rows += pair("backbone/pooler", "bert/pooler/dense", *_KERNEL)
    transform = "cls/predictions/transform"
    last = 2 * len(config.layer_table()) + 1
    norm = "LayerNorm" if shared_norms else f"layer_normalization_{last}"
    rows += pair("mlm_head/dense", f"{transform}/dense", *_KERNEL)
    rows += pair("mlm_head/layer_norm", f"{transform}/{norm}", *_NORM)
    rows.append(Row("mlm_head/output_bias", "cls/predictions/output_bias"))
    ours = "sop_head" if head == "pretraining" else "classifier"
    theirs = _HEADS.get(head, _HEADS[None])
    rows.append(Row(f"{ours}/kernel", theirs.format("weights"), transpose=True))
    rows.append(Row(f"{ours}/bias", theirs.format("bias")))
    return rows


def standard_names(names: Iterable[str]) -> dict[str, str]:
    """Names in a checkpoint, with what stands before `bert/` taken off.

    TF-Hub modules loaded into a model have `module/`, and TensorFlow 2's converters
    of TensorFlow 1 models keep such scopes too.

    Returns:
        The usual name to the one in the checkpoint.
    """
    names = list(names)
    inside = [name for name in names if "/bert/embeddings/" in name]
    prefix = inside[0].partition("bert/embeddings/")[0] if inside else ""
    cut = len(prefix)
    return {(n[cut:] if prefix and n.startswith(prefix) else n): n for n in names}


def unshared_norms(names: Iterable[str], config: AlbertConfig) -> dict[str, str]:
    """Our names of the layer norms of the variant that does not share them.

    Keras numbered them over the whole graph (0 the embeddings', then two a layer);
    within a layer the lower number is the attention's. Known from
    google-research/albert issue 241.

    Returns:
        The usual name of such a table to the name in the checkpoint; empty if the
        checkpoint is not of this variant.
    """
    blocks: dict[tuple[int, int], dict[int, str]] = {}
    result = {}
    for name in names:
        if found := _UNSHARED.match(name):
            key = int(found["layer"]), int(found["inner"])
            number = int(found["number"] or 0)
            blocks.setdefault(key, {})[number] = name.rpartition("/")[0]
    for (layer, inner), numbered in blocks.items():
        own = layer * config.inner_group_num + inner
        for part, number in zip(("attention", "ffn"), sorted(numbered), strict=False):
            stem = f"backbone/encoder/{part}_layer_norm_{own}"
            for weight in ("gamma", "beta"):
                result[f"{stem}/{weight}"] = f"{numbered[number]}/{weight}"
    if blocks:
        for name in filter(_KERAS_NORM.match, names):
            scope, _, weight = name.rpartition("/")
            stem = "backbone/embeddings" if "embeddings" in scope else "mlm_head"
            result[f"{stem}/layer_norm/{weight}"] = name
    return result


def _blocks(config: AlbertConfig, shared_norms: bool) -> list[Row]:
    rows = []
    blocks = max(row.attention for row in config.layer_table()) + 1
    for block in range(blocks):
        number, inner = divmod(block, config.inner_group_num)
        group = config.group_numbers()[number]
        scope = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        for ours, theirs in _BLOCK.items():
            if shared_norms or "norm" not in ours:
                rows += _rows(ours.format(block), f"{scope}/{theirs}")
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
        rows += _rows(f"attention_layer_norm_{number}", f"{scope}_{2 * number + 1}")
        rows += _rows(f"ffn_layer_norm_{number}", f"{scope}_{2 * number + 2}")
    return rows


def _bert_blocks(config: AlbertConfig) -> list[Row]:
    return [
        row
        for layer in range(config.num_hidden_layers)
        for ours, theirs in _BERT_BLOCK.items()
        for row in _rows(ours.format(layer), f"bert/encoder/layer_{layer}/{theirs}")
    ]


def _rows(ours: str, theirs: str) -> list[Row]:
    parts = _NORM if "norm" in ours else _KERNEL
    return pair(f"backbone/encoder/{ours}", theirs, *parts)
