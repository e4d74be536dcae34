"""Describes the NVIDIA GPU that JAX computes on or compiles for, and reads XLA's flags.

Layers choose the operations that suit it by `is_cuda`; other devices keep theirs.
"""

import contextlib
import contextvars
import os
import re
from collections.abc import Iterator
from typing import Any

import keras

_TARGET = contextvars.ContextVar("albert_tf_cuda_target", default=None)


def adds_in_order() -> bool:
    """Returns whether XLA excludes GPU operations that add in an arbitrary order."""
    flags = os.environ.get("XLA_FLAGS", "")
    values = re.findall(r"--xla_gpu_deterministic_ops(?:=(\S*))?", flags)
    return bool(values) and values[-1] in ("", "true", "True", "1")


@contextlib.contextmanager
def compiling_for(generation: int) -> Iterator[None]:
    """Traces the programs inside for a GPU of a generation, which need not be here."""
    token = _TARGET.set(generation)
    try:
        yield
    finally:
        _TARGET.reset(token)


def cuda_generation() -> int:
    """Returns the major compute capability of JAX's NVIDIA GPU, or 0."""
    if (target := _TARGET.get()) is not None:
        return target
    import jax

    # The capability is a string of numbers for CUDA, and a name for other devices.
    capability = getattr(jax.local_devices()[0], "compute_capability", None)
    major = str(capability).partition(".")[0]
    return int(major) if major.isdigit() else 0


def is_cuda() -> bool:
    """Returns whether Keras computes with JAX on an NVIDIA GPU."""
    return keras.backend.backend() == "jax" and cuda_generation() > 0


def recomputed(x: Any) -> Any:
    """Returns `x`, such that XLA computes results of it again instead of keeping them.

    Otherwise, XLA merges a backward pass that recomputes with the forward pass. On
    other devices, `x` is returned unchanged.
    """
    if not is_cuda():
        return x
    import jax

    return jax.lax.optimization_barrier(x)
