"""Reads and writes torch's files of tensors. Nothing in a pickle is ever run."""

import re
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from albert_tf.converters.checkpoint import Tensor
from albert_tf.errors import DataError, UsageError, require


def _torch(error: type[Exception], path: str) -> Any:
    """Returns the library, or raises an error that says how to install it."""
    try:
        import torch
    except ImportError:
        message = "a torch file needs torch (pip install albert_tf[peers])"
        raise error(f"{path}: {message}; safetensors does not") from None
    return torch


def load(path: str, *allowed: type) -> Mapping[str, Any]:
    """Unpickles a dict of tensors and plain values.

    Args:
        path: str. The file.
        *allowed: type. Classes that it may hold besides; their constructors may be
            called with any arguments.

    Raises:
        DataError: If torch is not installed, or the file holds anything else.
    """
    torch = _torch(DataError, path)
    try:
        with torch.serialization.safe_globals(list(allowed)):
            found = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(found, Mapping):
            raise ValueError(f"contains a {type(found).__name__}")
    # torch raises all that its parser runs into: UnpicklingError, EOFError and more.
    except Exception as e:
        # The rest of that message is how to run it.
        unwanted = re.search(r"GLOBAL (\S+)", str(e))
        first = str(e).split("\n")[0][:200]
        reason = f"holds {unwanted[1]}" if unwanted else first
        raise DataError(f"{path}: not a torch file of tensors: {reason}") from None
    return found


def tensors(path: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the tensors of a state dict as float32.

    Raises:
        DataError: If a value is not a dense tensor of real numbers with values.
    """
    torch = _torch(DataError, path)
    for name, value in state.items():
        rule = f"{path}: not a torch file of tensors: {str(name)[:100]!r} must be one"
        is_tensor = isinstance(value, torch.Tensor)
        require(is_tensor, rule, type(value).__name__, error=DataError)
        odd = value.is_meta or value.is_quantized or value.is_nested
        odd = odd or value.is_complex() or value.layout != torch.strided
        rule = f"{path}: {str(name)[:100]!r} must be a dense tensor of real numbers"
        kind = f"{value.layout}, {value.dtype} on {value.device}"
        require(not odd, rule, kind, error=DataError)
    return {
        str(name): Tensor(
            str(name), tuple(value.shape), lambda v=value: v.detach().float().numpy()
        )
        for name, value in state.items()
    }


def write(
    f: BinaryIO,
    theirs: Mapping[str, Tensor],
    tied: Mapping[str, str],
    around: Mapping[str, Any],
) -> None:
    """Writes a state dict, with all tensors in memory.

    Args:
        f: file. Destination.
        theirs: mapping. Tensors by name.
        tied: mapping. Second names to the names of the tensors that they share.
        around: mapping. What is written beside the state dict, which is then `model`.

    Raises:
        UsageError: If torch is not installed.
    """
    torch = _torch(UsageError, f.name)
    state = {
        name: torch.from_numpy(np.array(tensor.read(), np.float32, order="C"))
        for name, tensor in theirs.items()
    }
    state |= {second: state[first] for second, first in tied.items()}
    torch.save({**around, "model": state} if around else state, f)
