"""Reads torch's files of tensors, without ever running code from a pickle."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.converters.checkpoint import Tensor, as_float32
from albert_tf.errors import DataError, require


def load(path: str) -> dict[str, Tensor]:
    """Unpickles the tensors of a state dict, as float32.

    Raises `DataError` if torch is not installed, or the file holds anything but dense
    tensors of real numbers with values.
    """
    try:
        import torch
    except ImportError:
        message = "a torch file needs torch (pip install albert_tf[peers])"
        raise DataError(f"{path}: {message}; safetensors does not") from None
    expected = f"{path}: not a torch file of tensors"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, Mapping):
            raise ValueError(f"contains a {type(state).__name__}")
    # torch raises any error of its parser: UnpicklingError, EOFError and others.
    except Exception as e:
        # The rest of the message explains how to run the file.
        unwanted = re.search(r"GLOBAL (\S+)", str(e))
        first = str(e).split("\n")[0][:200]
        reason = f"holds {unwanted[1]}" if unwanted else first
        raise DataError(f"{expected}: {reason}") from None
    for name, value in state.items():
        shown = f"{str(name)[:100]!r}"
        is_tensor = isinstance(value, torch.Tensor)
        kind = type(value).__name__
        require(is_tensor, f"{expected}: {shown} must be one", kind, error=DataError)
        odd = value.is_meta or value.is_quantized or value.is_nested
        odd = odd or value.is_complex() or value.layout != torch.strided
        kind = f"{value.layout}, {value.dtype} on {value.device}"
        dense = f"{path}: {shown} must be a dense tensor of real numbers"
        require(not odd, dense, kind, error=DataError)
    return {str(n): _tensor(f"{path}: {n}", str(n), v) for n, v in state.items()}


def _tensor(where: str, name: str, value: Any) -> Tensor:
    def read() -> np.ndarray:
        array = value.detach()  # NumPy has no bfloat16
        array = array.float() if array.is_floating_point() else array
        return as_float32(array.numpy(), where)

    return Tensor(name, tuple(value.shape), read)
