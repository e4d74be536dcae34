"""The results of a benchmark: lines for people, JSON, Markdown."""

import importlib.metadata
import json
import os
import platform
from typing import Any, NamedTuple

from albert_tf.storage import files

_PACKAGES = ("tensorflow", "keras", "numpy", "sentencepiece", "sentencex")
# The parts of a CPU's description that speed depends on.
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd")


class Row(NamedTuple):
    """One measured quantity."""

    name: str
    value: float
    unit: str
    target: str = ""  # what was aimed at, in words
    details: dict[str, Any] | None = None

    def text(self) -> str:
        """The value as people read it."""
        precise = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{precise} {self.unit}".strip()


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


def to_markdown(title: str, rows: list[Row], about: dict[str, Any]) -> str:
    """A table, and what was measured where."""
    lines = [f"# {title}", "", "| what | measured | aim |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.text()} | {row.target} |" for row in rows]
    cpu = about["cpu"]
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items() if v)
    lines += [
        "",
        f"{about['cores']} cores ({cpu['model']}; {', '.join(cpu['flags']) or '-'}), "
        f"{about['memory_gigabytes']} GB, {about['system']}; load at the start "
        f"{about['load_at_start']}. {versions}.",
    ]
    details = [(row.name, row.details) for row in rows if row.details]
    if details:
        lines += ["", "Single measurements:", ""]
        lines += [f"* {name}: `{json.dumps(one)}`" for name, one in details]
    return "\n".join(lines) + "\n"


def write(path: str, title: str, rows: list[Row], about: dict[str, Any]) -> None:
    """Writes `<path>.json` and `<path>.md`; the suffix may be given or not."""
    stem = path.removesuffix(".json").removesuffix(".md")
    if folder := os.path.dirname(stem):
        files.make_folder(folder)
    content = {"title": title, "machine": about, "rows": [r._asdict() for r in rows]}
    files.write_text(f"{stem}.json", json.dumps(content, indent=1) + "\n", True)
    files.write_text(f"{stem}.md", to_markdown(title, rows, about), True)


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
