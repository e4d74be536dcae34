"""The dialects of config JSON: ours, the original's and Hugging Face's."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

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
# Keys of released albert_config.json files which the original never reads, and
# those of brightmart/albert_zh and BERT that do not change what is computed.
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
# Keys which, at another value, mean a model that this package does not compute.
MUST_BE = {
    "ln_type": ("postln",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}
# Hugging Face's names -> ours. Same function, other name.
HF_ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_python": "gelu",
    "swish": "silu",
}


def dialect(values: dict[str, Any]) -> str:
    """Who wrote a config: `OURS`, `HUGGINGFACE` or `ORIGINAL`.

    `layer_norm_eps` has been in Hugging Face's files since the first release and is
    in none of the original's.
    """
    if values.get("format") == OURS:
        return OURS
    marks = ("model_type", "transformers_version", "architectures", "layer_norm_eps")
    return HUGGINGFACE if any(m in values for m in marks) else ORIGINAL


def to_fields(
    values: dict[str, Any], fields: Sequence[dataclasses.Field]
) -> dict[str, Any]:
    """Translates the content of a config JSON to `AlbertConfig` fields.

    Raises:
        ValueError: If a size is missing, a key is unknown (Hugging Face's files
            may hold any other key), or the config describes another model.
    """
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, received {type(values).__name__}")
    kind = dialect(values)
    known = {f.name for f in fields}
    missing = [k for k in REQUIRED if k not in values]
    if missing and kind != OURS:
        raise ValueError(f"missing {', '.join(missing)}")
    for key, allowed in MUST_BE.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{key} must be {allowed[0]!r}, received {values[key]!r}: "
                "such a model computes something else"
            )
    model_type = values.get("model_type") or _model_type(values)
    if kind == HUGGINGFACE and model_type not in ("albert", "bert"):
        raise ValueError(f"model_type must be albert or bert, received {model_type!r}")
    if kind != HUGGINGFACE:
        others = {"share_parameter_across_layers"}
        # What a model folder of ours says besides: head, labels, tokenizer options.
        others |= {"format", "model", "tokenizer"} if kind == OURS else set()
        _refuse_unknown(values, known | others)
    result = {k: v for k, v in values.items() if k in known}
    if _is_bert(values, kind):
        result["embedding_size"] = values["hidden_size"]
        result["sharing"] = "none"
    if values.get("share_parameter_across_layers") is False:
        result["sharing"] = "none"
    act = result.get("hidden_act")
    if kind == ORIGINAL and act in (None, "gelu"):
        result["hidden_act"] = "gelu_new"
    elif kind == HUGGINGFACE:
        default = "gelu" if model_type == "bert" else "gelu_new"
        result["hidden_act"] = HF_ACTIVATIONS.get(str(act), act or default)
        # BERT's optional key of a similar name.
        if values.get("classifier_dropout") is not None:
            result["classifier_dropout_prob"] = values["classifier_dropout"]
    return result


def _is_bert(values: dict[str, Any], kind: str) -> bool:
    # Hugging Face's first files have no `model_type`.
    model_type = values.get("model_type") if kind == HUGGINGFACE else None
    return kind != OURS and (model_type or _model_type(values)) == "bert"


def _model_type(values: dict[str, Any]) -> str:
    albert_keys = ("embedding_size", "num_hidden_groups", "inner_group_num")
    return "albert" if any(k in values for k in albert_keys) else "bert"


def _refuse_unknown(values: dict[str, Any], known: set[str]) -> None:
    for key in values:
        if key not in known | IGNORED_ORIGINAL | set(MUST_BE):
            close = difflib.get_close_matches(str(key), known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"unknown key {key!r}{hint}")
