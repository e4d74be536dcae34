"""Machine, versions and code of a run, for its record."""

import importlib.metadata
import os
import platform
import subprocess
from typing import Any


def describe_environment() -> dict[str, Any]:
    """Versions and the git revision of the code, for the record."""
    packages = ("albert_tf", "tensorflow", "keras", "numpy", "sentencepiece")
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {"versions": versions, "git_revision": _git_revision()}


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


_PACKAGES = ("tensorflow", "keras", "numpy", "sentencepiece", "sentencex")


# The parts of a CPU's description that speed depends on.
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd")


def machine() -> dict[str, Any]:
    """The class of machine and the versions; no names."""
    versions = {"python": platform.python_version()}
    for package in ("albert_tf", *_PACKAGES):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cores": _num_cores(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cpu": _cpu(),
        "memory_gigabytes": _memory(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "versions": versions,
    }


def _num_cores() -> int:
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
    found = (fields.get("flags") or fields.get("Features") or "").split()
    model = fields.get("model name") or platform.processor() or "unknown"
    return {"model": model, "flags": [flag for flag in _FLAGS if flag in found]}


def _memory() -> float | None:
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return round(pages / 1e9, 1)
