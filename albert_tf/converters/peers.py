"""Runs the libraries that a checkpoint's format is for."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.converters import huggingface, keras_hub
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.huggingface_names import FAMILIES
from albert_tf.heads import find

_HF_INPUTS = {
    features.TOKEN_IDS: "input_ids",
    features.SEGMENT_IDS: "token_type_ids",
    features.PADDING_MASK: "attention_mask",
}
_HF_OUTPUTS = {
    "logits": "logits",
    "start_logits": "start_logits",
    "end_logits": "end_logits",
    "prediction_logits": "mlm_logits",
    "sop_logits": "sop_logits",
    "seq_relationship_logits": "sop_logits",
    "pooler_output": "pooler",
}


class Peer(NamedTuple):
    """A library that runs the files of a format.

    Args:
        needs: tuple of str. Modules that must be installed.
        run: callable. From the checkpoint, the path of its folder and a batch from
            `parity.make_batch` to outputs named as by `parity.outputs_of`.
        tokenize: callable. From the path and texts to the ids of each text.
    """

    needs: tuple[str, ...]
    run: Callable[[Checkpoint, str, dict[str, np.ndarray]], dict[str, np.ndarray]]
    tokenize: Callable[[str, Sequence[str]], list[list[int]]]


def find_peer(format: str) -> Peer | None:
    """Returns the library for a format; None without one or if it is missing."""
    peer = _PEERS.get(format)
    installed = peer and all(map(importlib.util.find_spec, peer.needs))
    return peer if installed else None


def _run_transformers(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through transformers."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    prefix = FAMILIES[checkpoint.config.family].class_prefix
    cls = getattr(transformers, prefix + find(checkpoint.head).huggingface_class)
    # Only the library's own classes are run, and a pickle is never loaded.
    model = cls.from_pretrained(
        path,
        attn_implementation="eager",
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
    ).eval()
    inputs = {_HF_INPUTS[k]: torch.tensor(v).long() for k, v in batch.items()}
    with torch.no_grad():
        out = model(**inputs, output_hidden_states=True)
    result = {
        ours: out[theirs].numpy()
        for theirs, ours in _HF_OUTPUTS.items()
        if out.get(theirs) is not None
    }
    for i, state in enumerate(out.hidden_states):
        # BERT's first state is its embeddings; ALBERT's the projected ones.
        result["projection" if i == 0 else f"layer {i}"] = state.numpy()
    return result


def _tokenize_transformers(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that `AutoTokenizer` gives to texts, without special tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, trust_remote_code=False
    )
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def _run_keras_hub(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through KerasHub."""
    import keras
    import keras_hub

    cls = getattr(keras_hub.models, find(checkpoint.head).keras_hub_class)
    options = {} if checkpoint.head is None else {"preprocessor": None}
    model = cls.from_preset(path, **options)
    if find(checkpoint.head).has_masked_lm:
        rows, length = batch[features.TOKEN_IDS].shape
        positions = np.tile(np.arange(length), (rows, 1))
        batch = {**batch, features.MASK_POSITIONS: positions}
    out = model(batch)
    if checkpoint.head is not None:
        return {"logits": keras.ops.convert_to_numpy(out)}
    last = f"layer {len(checkpoint.config.layer_table())}"
    values = {last: out["sequence_output"], "pooler": out["pooled_output"]}
    return {name: keras.ops.convert_to_numpy(value) for name, value in values.items()}


def _tokenize_keras_hub(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that KerasHub's tokenizer gives to texts."""
    import keras_hub

    tokenizer = keras_hub.tokenizers.AlbertTokenizer.from_preset(path)
    return [[int(i) for i in tokenizer(text)] for text in texts]


# By format; the original, `tf1`, needs TensorFlow 1.
_PEERS = {
    huggingface.NAME: Peer(
        ("transformers", "torch"), _run_transformers, _tokenize_transformers
    ),
    keras_hub.NAME: Peer(("keras_hub",), _run_keras_hub, _tokenize_keras_hub),
}
