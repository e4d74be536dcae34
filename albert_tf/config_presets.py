"""The sizes of the released models."""

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
