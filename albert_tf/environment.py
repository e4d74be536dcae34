"""The environment of a run, for its record: versions, code and machine."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from typing import Any

# Determines the kernels that TensorFlow uses on a CPU, and so the bits of a result.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# The packages that the results of a run depend on.
_PACKAGES = ("albert_tf", "tensorflow", "keras", "numpy", "sentencepiece")
_CODE = ("albert_tf", "tensorflow", "keras")
# The features of a CPU that affect speed.
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd")


def code_versions(backend: str) -> dict[str, str | None]:
    """Returns the versions that define a run's results and must not change within it.

    `backend` is "tensorflow" or "jax".
    """
    numbers = versions(dict.fromkeys((*_CODE, backend)))
    del numbers["python"]
    return numbers


def describe_environment(backend: str = "tensorflow") -> dict[str, Any]:
    """Returns versions, the git revision of the code, and the choice of kernels."""
    return {
        "versions": versions(dict.fromkeys((*_PACKAGES, backend))),
        "git_revision": _git_revision(),
        # None is TensorFlow's own choice for the CPU.
        ONEDNN: os.environ.get(ONEDNN),
    }


def machine() -> dict[str, Any]:
    """Returns the kind of machine, its load, and versions, all of which affect speed.

    Nothing identifies the machine.
    """
    size = memory_bytes()
    return {
        "cores": num_cores(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cpu": _cpu(),
        "memory_gigabytes": size and round(size / 1e9, 1),
        "load_at_start": round(os.getloadavg()[0], 1),
        "versions": versions((*_PACKAGES, "sentencex", "jax", "torch", "transformers")),
    }


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Returns versions by package, of Python first; None if a package is missing."""
    result: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = None
    return result


def _git_revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(
            command,
            cwd=os.path.dirname(__file__),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    present = (fields.get("flags") or fields.get("Features") or "").split()
    model = fields.get("model name") or platform.processor() or "unknown"
    return {"model": model, "flags": [flag for flag in _CPU_FLAGS if flag in present]}


def memory_bytes() -> int | None:
    """Returns the size of the machine's memory, or None if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
