"""Distinguishes models by their content."""

import hashlib
import json
import os

import numpy as np

from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.tokenizers import choose_tokenizer


def model_digest(path: str | os.PathLike) -> str:
    """Returns a digest of the weights, the tokenizer and all that is saved with them.

    Args:
        path: str or path. As for `albert_tf.from_pretrained`.
    """
    with open_checkpoint(path) as checkpoint:
        tokenizer = choose_tokenizer(checkpoint, None, None, None)
        about = [
            checkpoint.config.to_dict(),
            checkpoint.head,
            checkpoint.labels,
            checkpoint.problem_type,
            checkpoint.max_seq_length,
            checkpoint.task,
            checkpoint.head_options,
            tokenizer.sha256,
            tokenizer.get_config(),
        ]
        text = json.dumps(about, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode())
        for name in sorted(checkpoint.tensors):
            value = np.ascontiguousarray(checkpoint.tensors[name].read())
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(value.data)
    return digest.hexdigest()
