"""The common part of the benchmarks against transformers: its training.

As its Trainer does: AdamW, bfloat16 by autocast, gradients clipped to a norm of 1.
"""

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import UsageError

# Label that transformers' loss ignores.
_IGNORED = -100


def require(topic: str, package: str = "transformers") -> None:
    """Raises `UsageError` if the package or torch is not installed."""
    if not all(map(importlib.util.find_spec, ("torch", package))):
        raise UsageError(
            f"benchmark {topic} compares with {package}, which is not installed: "
            "pip install 'albert_tf[peers]'"
        )


def load(model: Any, class_name: str) -> Any:
    """Returns transformers' model of a class with the weights of ours."""
    import transformers

    from albert_tf.converters.load import save_pretrained

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model"
        save_pretrained(model, path, format="huggingface")
        return getattr(transformers, class_name).from_pretrained(path)


def pretraining_inputs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts a pretraining batch of ours to transformers' `AlbertForPreTraining`."""
    ids, places = batch[features.TOKEN_IDS], batch[features.MASK_POSITIONS]
    labels = np.full(ids.shape, _IGNORED)
    row, column = np.nonzero(batch[features.MASK_WEIGHTS])
    labels[row, places[row, column]] = batch[features.MASK_IDS][row, column]
    return {
        "input_ids": ids,
        "token_type_ids": batch[features.SEGMENT_IDS],
        "attention_mask": batch[features.PADDING_MASK],
        "labels": labels,
        "sentence_order_label": batch[features.SENTENCE_ORDER_LABELS],
    }


def make_step(
    model: Any, rate: float, precision: str, compiled: bool = False
) -> Callable[[Mapping[str, Any]], None]:
    """Returns a function that trains transformers' model on a batch of integers.

    Args:
        model: From `load`, on the device on which it is to be trained.
        rate: float. Learning rate.
        precision: str. "bfloat16" or "float32".
        compiled: bool. Whether `torch.compile` compiles the model.
    """
    import torch

    forward = torch.compile(model) if compiled else model
    minimize = make_minimizer(model, rate, precision)

    def train(batch: Mapping[str, Any]) -> None:
        tensors = {name: torch.as_tensor(v).long() for name, v in batch.items()}
        minimize(lambda: forward(**tensors).loss)

    return train


def make_minimizer(
    model: Any, rate: float, precision: str
) -> Callable[[Callable[[], Any]], None]:
    """Returns a function that updates a model once to lower the loss that it is given.

    The loss is a function without arguments; for the others, see `make_step`.
    """
    import torch

    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=0.01, fused=True
    )
    autocast = contextlib.nullcontext()
    if precision == "bfloat16":
        autocast = torch.autocast(model.device.type, dtype=torch.bfloat16)

    def minimize(compute: Callable[[], Any]) -> None:
        optimizer.zero_grad()
        with autocast:
            loss = compute()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return minimize
