"""Reads config files in three dialects: ours, the original's and Hugging Face's.

Also has the sizes of the released models.
"""

import difflib
import re
from typing import Any

from albert_tf.errors import require

# The writers of config files.
OURS = "albert_tf"
ORIGINAL = "original"
HUGGINGFACE = "huggingface"

REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# Keys of released albert_config.json files that the original never reads, and keys of
# brightmart/albert_zh and BERT that do not change what is computed.
IGNORED_ORIGINAL = {
    "net_structure_type",
    "gap_size",
    "num_memory_blocks",
    "down_scale_factor",
    "layers_to_keep",
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
}
# Any other value of these keys means a model that this package does not compute.
MUST_BE = {
    "ln_type": ("postln",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    # ELECTRA's multiple choice uses these in place of a pooler.
    "summary_type": ("first",),
    "summary_use_proj": (True,),
    "summary_activation": ("gelu",),
}
# Hugging Face's names -> ours, for the same function.
HF_ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_python": "gelu",
    "swish": "silu",
}
# Families of models by the `model_type` that Hugging Face gives them.
FAMILIES = ("albert", "bert", "roberta", "electra")
# What distinguishes other encoders from these, by `model_type`.
_UNLIKE = {
    **dict.fromkeys(("modernbert", "neobert", "eurobert"), "pre-norm and rotary"),
    **dict.fromkeys(("nomic_bert", "gte", "new", "roformer"), "rotary"),
    **dict.fromkeys(("roberta-prelayernorm", "xlm-roberta-xl"), "pre-norm"),
}
# Families whose original code calls the exact gelu `"gelu"`.
_EXACT = ("roberta", "electra")
_CLASS = re.compile(
    r"(?:TF|Flax)?(Albert|Bert|Roberta|Electra)(Model|For|LMHead|PreTrained)"
)


def dialect_of(values: dict[str, Any]) -> str:
    """Returns the writer of a config: `OURS`, `HUGGINGFACE` or `ORIGINAL`.

    Hugging Face's files have had `layer_norm_eps` since the first release; the
    original's never have it, unless a user has named RoBERTa or ELECTRA in it.
    """
    if values.get("format") == OURS:
        return OURS
    marks = ["model_type", "transformers_version", "architectures"]
    if values.get("family") not in _EXACT:
        marks.append("layer_norm_eps")
    return HUGGINGFACE if any(m in values for m in marks) else ORIGINAL


def to_fields(values: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Translates the content of a config JSON to `AlbertConfig` fields.

    `known` holds the names of the fields. Raises `ValueError` if a size is missing, a
    key is unknown (Hugging Face's files may have additional keys), or the config
    describes another model.
    """
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, received {type(values).__name__}")
    kind = dialect_of(values)
    # This is checked first, because other models use other names for their sizes.
    family = _family(values, kind)
    missing = [k for k in REQUIRED if k not in values]
    if missing and kind != OURS:
        raise ValueError(f"missing {', '.join(missing)}")
    for key, allowed in MUST_BE.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{key} must be {allowed[0]!r}, received {values[key]!r}: "
                "such a model computes something else"
            )
    if kind != HUGGINGFACE:
        others = {"share_parameter_across_layers"}
        # The config.json of our model folders also contains the head, the labels and
        # the tokenizer's options.
        others |= {"format", "model", "tokenizer", "base"} if kind == OURS else set()
        others |= known
        for key in values:
            if key not in others | IGNORED_ORIGINAL | set(MUST_BE):
                close = difflib.get_close_matches(str(key), others, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"unknown key {key!r}{hint}")
    result = {k: v for k, v in values.items() if k in known}
    if family in ("bert", "roberta"):
        result["embedding_size"] = values["hidden_size"]
    if family in ("bert", "roberta", "electra"):
        result["sharing"] = "none"
    if kind == HUGGINGFACE:
        result["family"] = family
    elif kind == ORIGINAL and family is None:
        result = _family_defaults(values) | result
    if family == "roberta":
        _set_positions(result, values)
    if values.get("share_parameter_across_layers") is False:
        result["sharing"] = "none"
    act = result.get("hidden_act")
    if kind == ORIGINAL and act in (None, "gelu"):
        exact = values.get("family") in _EXACT
        result["hidden_act"] = "gelu" if exact else "gelu_new"
    elif kind == HUGGINGFACE:
        default = "gelu_new" if family == "albert" else "gelu"
        result["hidden_act"] = HF_ACTIVATIONS.get(str(act), act or default)
        # BERT's optional key has another name, and the encoder's rate as its default.
        rate = values.get("classifier_dropout")
        if rate is None and family != "albert":
            rate = values.get("hidden_dropout_prob")
        if rate is not None:
            result["classifier_dropout_prob"] = rate
    return result


def _family(values: dict[str, Any], kind: str) -> str | None:
    """Returns the family that the keys show; None if ours or named by a user."""
    if kind == OURS or kind == ORIGINAL and values.get("family") in FAMILIES[1:]:
        return None
    albert_keys = ("embedding_size", "num_hidden_groups", "inner_group_num")
    guessed = "albert" if any(k in values for k in albert_keys) else "bert"
    if kind == ORIGINAL:
        return guessed
    if model_type := values.get("model_type"):
        expected = f"model_type must be {' or '.join(FAMILIES)}"
        unlike = _UNLIKE.get(str(model_type))
        expected += f", none of which is {unlike}" if unlike else ""
        require(model_type in FAMILIES, expected, model_type, error=ValueError)
        return model_type
    # Hugging Face's first files have no model_type; RoBERTa's look like BERT's.
    classes = values.get("architectures")
    for name in classes if isinstance(classes, list) else ():
        expected = f"architectures must be of {' or '.join(FAMILIES)}"
        match = _CLASS.match(str(name))
        require(match, expected, name, error=ValueError)
        guessed = guessed if match[1] == "Bert" else match[1].lower()
    return guessed


def _family_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the defaults of a file that names ALBERT's relative."""
    shared = values.get("share_parameter_across_layers")
    fields = {"sharing": "all" if shared else "none"}
    fields["embedding_size"] = values["hidden_size"]
    if values["family"] == "roberta":
        fields |= {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return fields


def _set_positions(result: dict[str, Any], values: dict[str, Any]) -> None:
    """Sets the positions of a RoBERTa, whose file counts the rows of the table."""
    pad_id = values.get("pad_token_id", 1)
    rows = values.get("max_position_embeddings", 512)
    expected = "pad_token_id must be an integer of at least 0"
    require(type(pad_id) is int and pad_id >= 0, expected, pad_id, error=ValueError)
    expected = f"max_position_embeddings must be an integer above {pad_id + 1}"
    require(type(rows) is int and rows > pad_id + 1, expected, rows, error=ValueError)
    result["position_offset"] = pad_id + 1
    result["max_position_embeddings"] = rows - pad_id - 1


def _albert(d: int, layers: int, heads: int, dropout: float) -> dict[str, Any]:
    return {
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * d,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


def _bert(d: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        **_albert(d, layers, heads, 0.1),
        "vocab_size": 30522,
        "embedding_size": d,
        "hidden_act": "gelu",
        "sharing": "none",
        "family": "bert",
    }


def _roberta(d: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        **_bert(d, layers, heads),
        "vocab_size": 50265,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "family": "roberta",
        "position_offset": 2,
    }


_ELECTRA = {"hidden_act": "gelu", "family": "electra"}
# Sizes: ALBERT, Table 1; dropout: the released albert_config.json of v1 and v2.
# RoBERTa, Table 9; ELECTRA, Table 6: its discriminators. `electra_albert_base` is a
# discriminator on ALBERT's shared block.
PRESETS: dict[str, dict[str, Any]] = {
    "albert_base_v1": _albert(768, 12, 12, 0.1),
    "albert_base_v2": _albert(768, 12, 12, 0.0),
    "albert_large_v1": _albert(1024, 24, 16, 0.1),
    "albert_large_v2": _albert(1024, 24, 16, 0.0),
    "albert_xlarge_v1": _albert(2048, 24, 16, 0.1),
    "albert_xlarge_v2": _albert(2048, 24, 16, 0.0),
    "albert_xxlarge_v1": _albert(4096, 12, 64, 0.0),
    "albert_xxlarge_v2": _albert(4096, 12, 64, 0.0),
    "bert_base": _bert(768, 12, 12),
    "bert_large": _bert(1024, 24, 16),
    "roberta_base": _roberta(768, 12, 12),
    "roberta_large": _roberta(1024, 24, 16),
    "electra_small": {**_bert(256, 12, 4), "embedding_size": 128, **_ELECTRA},
    "electra_base": {**_bert(768, 12, 12), **_ELECTRA},
    "electra_large": {**_bert(1024, 24, 16), **_ELECTRA},
    "electra_albert_base": {**_albert(768, 12, 12, 0.1), **_ELECTRA},
}
