"""Writes the results of a benchmark as a table, JSON and Markdown."""

import json
import os
from typing import Any, NamedTuple

from albert_tf.storage import files


class Row(NamedTuple):
    """One measured quantity."""

    name: str
    value: float
    unit: str
    target: str = ""  # what was aimed at, in words
    details: dict[str, Any] | None = None

    def text(self) -> str:
        """Returns the value as text."""
        precise = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{precise} {self.unit}".strip()


def to_markdown(title: str, rows: list[Row], about: dict[str, Any]) -> str:
    """Returns a table, and what was measured where."""
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
    """Writes `<path>.json` and `<path>.md`; the suffix may be omitted."""
    stem = path.removesuffix(".json").removesuffix(".md")
    if folder := os.path.dirname(stem):
        files.make_folder(folder)
    content = {"title": title, "machine": about, "rows": [r._asdict() for r in rows]}
    files.write_text(f"{stem}.json", json.dumps(content, indent=1) + "\n", True)
    files.write_text(f"{stem}.md", to_markdown(title, rows, about), True)
