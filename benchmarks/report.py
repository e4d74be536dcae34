"""Writes the results of a benchmark: a table, JSON, Markdown, sometimes a picture."""

import json
import os
import re
from typing import Any, NamedTuple

from albert_tf.storage import files


class Row(NamedTuple):
    """One measured quantity."""

    name: str
    value: float
    unit: str
    target: str = ""  # the aim, in words
    details: dict[str, Any] | None = None

    def text(self) -> str:
        """Returns the value as text."""
        precise = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{precise} {self.unit}".strip()


class Report(NamedTuple):
    """The results of a benchmark.

    Attributes:
        title: str. Its title.
        rows: list of `Row`. Its table.
        series: dict or None. Raw numbers behind the rows, for the JSON.
        picture: bytes or None. A PNG.
        notes: tuple of str. Sentences that complete the table.
        text: str. Markdown in the place of the rows' table; the rows are then only in
            the JSON.
    """

    title: str
    rows: list[Row]
    series: dict[str, Any] | None = None
    picture: bytes | None = None
    notes: tuple[str, ...] = ()
    text: str = ""


def to_markdown(report: Report, about: dict[str, Any]) -> str:
    """Returns a table, and a description of the measurement and the machine."""
    title, rows = report.title, report.rows
    lines = [f"# {title}", ""]
    if report.text:
        lines.append(report.text)
    else:
        lines += ["| what | measured | aim |", "|---|---|---|"]
        lines += [f"| {row.name} | {row.text()} | {row.target} |" for row in rows]
    lines += ["", *report.notes] if report.notes else []
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


def write(path: str, report: Report, about: dict[str, Any]) -> None:
    """Writes `<path>.json`, `<path>.md` and a picture, if there is one, `<path>.png`.

    Args:
        path: str. The files without their suffix.
        report: `Report`.
        about: dict. The machine.
    """
    if folder := os.path.dirname(path):
        files.make_folder(folder)
    rows = [row._asdict() for row in report.rows]
    content = {"title": report.title, "machine": about, "rows": rows}
    if report.notes:
        content["notes"] = report.notes
    if report.series:
        content["series"] = report.series
    files.write_text(f"{path}.json", _to_json(content), True)
    files.write_text(f"{path}.md", to_markdown(report, about), True)
    if report.picture:
        files.write_bytes(f"{path}.png", report.picture, True)


def _to_json(content: dict[str, Any]) -> str:
    """Returns JSON with each list of numbers on its own line."""
    text = files.to_json(content, indent=1)
    numbers = r"\[\n\s*([-+.\deE]+(?:,\s+[-+.\deE]+)*)\n\s*\]"
    return re.sub(numbers, lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"
