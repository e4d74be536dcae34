"""Holds the configs of the released models, by name."""

from typing import Any


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


# Sizes: ALBERT, Table 1; dropout: the released albert_config.json of v1 and v2.
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
}
