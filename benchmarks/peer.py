"""What the benchmarks against transformers have in common: how it is trained.

As its Trainer does: AdamW, bfloat16 by autocast, gradients clipped to a norm of 1.
"""

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf.converters.load import save_pretrained
from albert_tf.errors import UsageError


def require(topic: str) -> None:
    """Raises a UsageError if transformers or torch is not installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise UsageError(
            f"benchmark {topic} compares with transformers, which is not installed: "
            "pip install 'albert_tf[peers]'"
        ) from None


def load(model: keras.Model, class_name: str) -> Any:
    """Returns transformers' model of a class with the weights of ours."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model"
        save_pretrained(model, path, format="huggingface")
        return getattr(transformers, class_name).from_pretrained(path)


def make_step(
    model: Any, rate: float, precision: str, compiled: bool = False
) -> Callable[[Mapping[str, np.ndarray]], None]:
    """Returns a function that trains transformers' model on a batch of whole numbers.

    Args:
        model: From `load`.
        rate: float. Learning rate.
        precision: str. "bfloat16" or "float32".
        compiled: bool. Whether `torch.compile` compiles the model.
    """
    import torch

    model.train()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=0.01, fused=True
    )
    autocast = contextlib.nullcontext()
    if precision == "bfloat16":
        autocast = torch.autocast("cpu", dtype=torch.bfloat16)

    def train(batch: Mapping[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(v).long() for name, v in batch.items()}
        optimizer.zero_grad()
        with autocast:
            loss = forward(**tensors).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return train
