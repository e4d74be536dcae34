"""Runs the libraries that checkpoints are for, where they are installed."""

import importlib.util

import numpy as np

from albert_tf.converters import huggingface, keras_hub
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.huggingface_names import CLASS_NAMES
from albert_tf.converters.table import is_bert

_HF_INPUTS = {
    "token_ids": "input_ids",
    "segment_ids": "token_type_ids",
    "padding_mask": "attention_mask",
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
_KH_CLASSES = {
    None: "AlbertBackbone",
    "masked_lm": "AlbertMaskedLM",
    "text_classifier": "AlbertTextClassifier",
}


def run(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Outputs of the library a checkpoint is for.

    Args:
        checkpoint: What `path` holds.
        path: Of the folder.
        batch: Of `parity.make_batch`.

    Returns:
        Outputs named as by `parity.outputs_of`; None if there is no such library, or
        it is not installed.
    """
    if checkpoint.format == huggingface.NAME and _installed("transformers", "torch"):
        return _run_transformers(checkpoint, path, batch)
    if checkpoint.format == keras_hub.NAME and _installed("keras_hub"):
        return _run_keras_hub(checkpoint, path, batch)
    return None


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


def _run_transformers(checkpoint, path, batch):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = "Bert" if is_bert(checkpoint.config) else "Albert"
    cls = getattr(transformers, kind + CLASS_NAMES[checkpoint.head])
    # Only classes of the library itself, and never a pickle.
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


def _run_keras_hub(checkpoint, path, batch):
    import keras
    import keras_hub

    cls = getattr(keras_hub.models, _KH_CLASSES[checkpoint.head])
    options = {} if checkpoint.head is None else {"preprocessor": None}
    model = cls.from_preset(path, **options)
    if checkpoint.head == "masked_lm":
        rows, length = batch["token_ids"].shape
        batch = {**batch, "mask_positions": np.tile(np.arange(length), (rows, 1))}
    out = model(batch)
    if checkpoint.head is not None:
        return {"logits": keras.ops.convert_to_numpy(out)}
    last = f"layer {len(checkpoint.config.layer_table())}"
    values = {last: out["sequence_output"], "pooler": out["pooled_output"]}
    return {name: keras.ops.convert_to_numpy(value) for name, value in values.items()}
