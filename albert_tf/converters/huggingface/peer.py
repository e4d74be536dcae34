"""Runs transformers on a converted folder."""

from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.huggingface.names import FAMILIES
from albert_tf.heads import find

NEEDS = ("transformers", "torch")
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


def run(
    checkpoint: Checkpoint, path: str, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs a batch through transformers.

    Args:
        checkpoint: `Checkpoint`. What `path` holds.
        path: str. Path of the folder.
        batch: dict. Inputs, from `parity.make_batch`.

    Returns:
        dict. Outputs, named as by `parity.outputs_of`.
    """
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


def tokenize(path: str, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids that `AutoTokenizer` gives to texts, without special tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, trust_remote_code=False
    )
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]
