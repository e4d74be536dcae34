"""Describes the GPU or TPU that JAX computes on or compiles for, and reads XLA's flags.

Layers choose the operations that suit it; other devices keep theirs.
"""

import contextlib
import contextvars
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras


class Device(NamedTuple):
    """An NVIDIA GPU, by its major compute capability, or a TPU, or another device."""

    cuda: int = 0
    tpu: bool = False


_TARGET = contextvars.ContextVar("albert_tf_target", default=None)


def adds_in_order() -> bool:
    """Returns whether XLA excludes GPU operations that add in an arbitrary order."""
    flags = os.environ.get("XLA_FLAGS", "")
    values = re.findall(r"--xla_gpu_deterministic_ops(?:=(\S*))?", flags)
    return bool(values) and values[-1] in ("", "true", "True", "1")


@contextlib.contextmanager
def compiling_for(device: Device) -> Iterator[None]:
    """Traces the programs inside for a device, which need not be here."""
    token = _TARGET.set(device)
    try:
        yield
    finally:
        _TARGET.reset(token)


def current_device() -> Device:
    """Returns the device that JAX computes on or compiles for."""
    if (target := _TARGET.get()) is not None:
        return target
    import jax

    device = jax.local_devices()[0]
    # The capability is a string of numbers for CUDA, and a name for other devices.
    capability = getattr(device, "compute_capability", None)
    major = str(capability).partition(".")[0]
    return Device(int(major) if major.isdigit() else 0, device.platform == "tpu")


def is_cuda() -> bool:
    """Returns whether Keras computes with JAX on an NVIDIA GPU."""
    return keras.backend.backend() == "jax" and current_device().cuda > 0


def recomputed(x: Any) -> Any:
    """Returns `x`, such that XLA computes results of it again instead of keeping them.

    Otherwise, XLA merges a backward pass that recomputes with the forward pass. On
    other devices, `x` is returned unchanged.
    """
    if not is_cuda():
        return x
    import jax

    return jax.lax.optimization_barrier(x)
