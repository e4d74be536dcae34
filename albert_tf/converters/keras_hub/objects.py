"""Builds the JSON of KerasHub's objects, as `keras.saving` writes it."""

import datetime
import math
from typing import Any

from albert_tf.converters.checkpoint.checkpoint import Tensor
from albert_tf.heads import HEADS as ROWS
from albert_tf.heads import find

# Registered names of the tasks, and our names of their heads.
HEADS = {
    f"keras_hub>{row.keras_hub_class}": name
    for name, row in ROWS.items()
    if row.keras_hub_class
}
VERSION = "0.32.0"
_MODULE = "keras_hub.src.models.albert"


def backbone(values: dict[str, Any]) -> dict:
    """Returns an `AlbertBackbone` with these arguments."""
    return _object("albert_backbone", "AlbertBackbone", **values)


def tokenizer() -> dict:
    """Returns an `AlbertTokenizer` whose vocabulary is in the assets."""
    return _object(
        "albert_tokenizer",
        "AlbertTokenizer",
        "int32",
        config_file="tokenizer.json",
        proto=None,
        sequence_length=None,
        add_bos=False,
        add_eos=False,
    )


def task(head: str, backbone: dict, length: int | None, **classifier) -> dict:
    """Returns a task around a backbone.

    Args:
        head: str. One of the values of `HEADS`.
        backbone: dict. From `backbone`.
        length: int or None. Longest sequence of its preprocessor; None for no
            preprocessor.
        **classifier: `num_classes` and `dropout`.
    """
    kind = find(head).keras_hub_class
    values = {} if head == "masked_lm" else {"activation": "linear", **classifier}
    prepared = None if length is None else _preprocessor(head, kind, length)
    return _object(
        f"albert_{head}", kind, None, backbone=backbone, preprocessor=prepared, **values
    )


def metadata(tensors: dict[str, Tensor], is_task: dict[str, bool]) -> dict:
    """Returns the content of `metadata.json`: versions and size."""
    import keras

    count = sum(math.prod(t.shape) for k, t in tensors.items() if not is_task[k])
    return {
        "keras_version": keras.__version__,
        "keras_hub_version": VERSION,
        "parameter_count": count,
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        "tasks": ["MaskedLM", "TextClassifier"],
    }


def _preprocessor(head: str, kind: str, length: int) -> dict:
    masking = {
        "mask_selection_rate": 0.15,
        "mask_selection_length": 96,
        "mask_token_rate": 0.8,
        "random_token_rate": 0.1,
    }
    return _object(
        f"albert_{head}_preprocessor",
        f"{kind}Preprocessor",
        tokenizer=tokenizer(),
        config_file="preprocessor.json",
        sequence_length=length,
        truncate="round_robin",
        **(masking if head == "masked_lm" else {}),
    )


def _object(file: str, kind: str, dtype: str | None = "float32", **values) -> dict:
    config: dict[str, Any] = {"name": file}
    if dtype is not None:
        policy = {
            "module": "keras",
            "class_name": "DTypePolicy",
            "config": {"name": dtype},
            "registered_name": None,
        }
        config |= {"trainable": True, "dtype": policy}
    return {
        "module": f"{_MODULE}.{file}",
        "class_name": kind,
        "config": {**config, **values},
        "registered_name": f"keras_hub>{kind}",
    }
