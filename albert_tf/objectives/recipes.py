"""Each objective's hyperparameters and masks in its paper, and its flags; no Keras.

docs/relatives.md shows the recipes as a table.
"""

from collections.abc import Mapping
from typing import Any

# ALBERT's; for BERT and this batch, LAMB's paper has the same rate and 1/40 warm-up.
_ALBERT: Mapping[str, Any] = {
    "optimizer": "lamb",
    "learning_rate": 0.00176,
    "learning_rate_schedule": "original",
    "train_batch_size": 4096,
    "num_train_steps": 125_000,
    "num_warmup_steps": 3_125,
    "weight_decay_rate": 0.01,
    "clip_norm": 1.0,
    "beta_2": 0.999,
    "epsilon": 1e-6,
    "bias_correction": False,
    "exclude_from_weight_decay": "LayerNorm,layer_norm,bias",
}
# fairseq's Adam, which decays every variable.
_FAIRSEQ = {
    **_ALBERT,
    "optimizer": "adamw",
    "learning_rate_schedule": "linear",
    "bias_correction": True,
    "exclude_from_weight_decay": "",
}
_ROBERTA = {
    **_FAIRSEQ,
    **{"learning_rate": 6e-4, "train_batch_size": 8192, "num_train_steps": 500_000},
    **{"num_warmup_steps": 24_000, "clip_norm": 0.0, "beta_2": 0.98},
}
_SPANBERT = {
    **_FAIRSEQ,
    **{"learning_rate": 1e-4, "train_batch_size": 256, "num_train_steps": 2_400_000},
    **{"num_warmup_steps": 10_000, "weight_decay_rate": 0.1, "epsilon": 1e-8},
}
_ELECTRA = {
    **_ALBERT,
    **{"optimizer": "adamw", "learning_rate": 5e-4, "train_batch_size": 128},
    **{"num_train_steps": 1_000_000, "num_warmup_steps": 10_000},
    "generator_size": 0.25,
}
_RECIPES = {"roberta": _ROBERTA, "spanbert": _SPANBERT, "electra": _ELECTRA}
_ELECTRA_BASE = {"learning_rate": 2e-4, "train_batch_size": 256}
_ELECTRA_BASE |= {"num_train_steps": 766_000, "generator_size": 1 / 3}
# Values that differ for larger models, by objective and preset.
_OF_PRESETS = {
    ("roberta", "roberta_large"): {"learning_rate": 4e-4, "num_warmup_steps": 30_000},
    ("electra", "electra_base"): _ELECTRA_BASE,
    ("electra", "electra_albert_base"): _ELECTRA_BASE,
    ("electra", "electra_large"): {
        **{"learning_rate": 2e-4, "train_batch_size": 2048},
        "num_train_steps": 400_000,
    },
}
# Settings that only one objective reads, and settings about a pair of segments.
OWN_SETTINGS = {
    "spanbert": ("max_span", "span_edges"),
    "electra": (
        *("generator_size", "generator_layers", "embedding_sharing"),
        *("share_encoder", "temperature", "disallow_correct"),
    ),
}
OF_PAIRS = ("albert", "bert")


def find_recipe(objective: str, preset: str = "") -> dict[str, Any]:
    """Returns the values of settings that were not given, by their names."""
    of_preset = _OF_PRESETS.get((objective, preset), {})
    recipe = _RECIPES.get(objective, _ALBERT)
    return {**recipe, "masking": objective, **of_preset}
