"""What a fine-tuned model gets right and wrong, as sections of a page.

A report is a dict, as in `report.json`. All of it is optional:

- `task`, `model`: names of the task, and of what was fine-tuned or evaluated,
- `metric`, `best_step`: what selects the checkpoint, and the step of the selected one,
- `warnings`: what the reader must know, such as a collapse,
- `results`: metrics by name, or such dicts by split,
- `splits`: by split, what `Task.report` returns: any of
    - `labels`, list of str, and `confusion`, int `[C, C]`, rows = correct,
    - `scatter`, list of (label, prediction),
    - `per_class`, list of `{"label", "precision", "recall", "f1", "support"}`,
    - `calibration`, list of (confidence, whether the answer is correct),
    - `errors`, list of `{"index", "text", "label", "prediction", "score",
      "truncated"}`, worst first,
    - `groups`, list of `{"name", <metric>: value}`,
- `lengths`: by split, `values`, tokens of each row, of which an example may have
  several; `max_seq_length`; `examples` and `truncated`, how many there are and how many
  of them lost text,
- `useful_token_rate`: share of the tokens of the training batches that are not padding.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.figure import PAGE_DPI, draw_lengths
from albert_tf.reports import figures
from albert_tf.reports.page import (
    Block,
    Facts,
    Figure,
    Figures,
    Heading,
    Page,
    Section,
    Table,
    Text,
    as_setting,
    as_text,
    flatten,
    render,
)

_NUM_PAIRS = 10  # of labels confused most, next to the matrix
_ONLY_PAIRS = 30  # and without it
_MAX_TEXT = 1000  # characters of a text among the errors
_ERROR_COLUMNS = {
    "index": "example",
    "label": "correct",
    "prediction": "predicted",
    "score": "score",
    "truncated": "cut",
    "text": "text",
}


def render_evaluation(report: Mapping[str, Any]) -> bytes:
    """Returns the page of an evaluation as an HTML file, UTF-8."""
    names = [f"{name} {report[name]}" for name in ("task", "model") if report.get(name)]
    title = f"Evaluation: {report.get('task', '')}"
    return render(Page(title, ", ".join(names), report_sections(report)))


def report_sections(report: Mapping[str, Any]) -> list[Section]:
    """Returns what there is to see of the answers of a model."""
    if not report:
        return []
    return [
        Section("Results", _results(report)),
        *(
            Section(f"Answers on {split}", _split_blocks(split, found))
            for split, found in report.get("splits", {}).items()
        ),
        Section("Lengths and truncation", _lengths(report)),
    ]


def _results(report: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    metric, step = report.get("metric"), report.get("best_step")
    if metric and step is not None:
        blocks.append(Text(f"The checkpoint of step {step:,} has the best {metric}."))
    results = report.get("results", {})
    by_split = {k: flatten(v) for k, v in results.items() if isinstance(v, Mapping)}
    flat = {k: v for k, v in results.items() if not isinstance(v, Mapping)}
    blocks += _metrics("Metrics by split", by_split, metric)
    return blocks + _metrics("Metrics", {"value": flat}, metric)


def _metrics(
    caption: str, columns: Mapping[str, Mapping[str, Any]], metric: str | None
) -> list[Block]:
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[name, *(c.get(name) for c in columns.values())] for name in names]
    marked = names.index(metric) if metric in names else None
    return [Table(caption, ["metric", *columns], rows, marked)] if rows else []


def seed_blocks(trials: Mapping[str, Any]) -> list[Block]:
    """Returns the results of several seeds side by side.

    Args:
        trials: dict. Of `metrics.json`: the `metric`, the name of the `best` one, and
            `runs`, each with `name`, `seed` and `value`, None if there is no metric.
    """
    metric, runs = trials.get("metric") or "result", trials["runs"]
    found = [run.get("value") for run in runs]
    values = [v for v in found if isinstance(v, int | float) and math.isfinite(v)]
    summary: dict[str, Any] = {"seeds": len(runs)}
    if values:
        summary["median"] = statistics.median(values)
        summary |= {"lowest": min(values), "highest": max(values)}
    if len(values) > 1:
        summary["standard deviation"] = statistics.stdev(values)
    names = [run.get("name") for run in runs]
    kept = [name is not None and name == trials.get("best") for name in names]
    rows = [
        {"name": name, "seed": as_setting(run.get("seed")), metric: run.get("value")}
        | {"selected": is_best}
        for run, name, is_best in zip(runs, names, kept, strict=True)
    ]
    marked = next((i for i, is_best in enumerate(kept) if is_best), None)
    table = Table.of("Results by seed", rows)._replace(marked=marked)
    return [Facts(f"The {metric} over seeds", summary), table]


def _split_blocks(split: str, report: Mapping[str, Any]) -> list[Block]:
    """Returns what there is to see of the answers on a split."""
    blocks: list[Block] = []
    for heading, caption, name in (
        ("Groups", "Metrics by group", "groups"),
        ("Labels", "Metrics by label", "per_class"),
    ):
        if lines := report.get(name):
            blocks += [Heading(heading), Table.of(caption, lines)]
    if len(report.get("confusion", ())):
        blocks += _confusion(split, report["labels"], report["confusion"])
    if len(report.get("scatter", ())):
        picture = figures.draw_scatter(split, report["scatter"])
        blocks += [Heading("Scores"), Figures([picture])]
    blocks += _calibration(split, report.get("calibration", ()))
    return blocks + _errors(report.get("errors", ()))


def _confusion(
    split: str, labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> list[Block]:
    blocks: list[Block] = [Heading("Confusion")]
    is_drawn = len(labels) <= figures.MAX_LABELS
    if is_drawn:
        blocks.append(Figures([figures.draw_confusion(split, labels, confusion)]))
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
        if row != column and count > 0
    )
    if not pairs:
        return [*blocks, Text("No label was confused with another.")]
    rows = [
        {
            "correct": labels[row],
            "predicted": labels[column],
            "examples": -count,
            "share of the correct label": -count / sum(confusion[row]),
        }
        for count, row, column in pairs[: _NUM_PAIRS if is_drawn else _ONLY_PAIRS]
    ]
    return [*blocks, Table.of("Labels confused most often", rows)]


def _calibration(split: str, calibration: Sequence[Sequence[Any]]) -> list[Block]:
    bins = figures.calibration_bins(calibration)
    total = bins.counts.sum()
    if not total:
        return []
    facts = {
        "expected calibration error": bins.error,
        "mean confidence": bins.confidences.sum() / total,
        "accuracy": bins.correct.sum() / total,
        "answers": total,
    }
    diagram = figures.draw_calibration(split, bins)
    return [Heading("Calibration"), Facts("Calibration", facts), Figures([diagram])]


def _errors(errors: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not errors:
        return []
    names = [name for name in _ERROR_COLUMNS if any(name in line for line in errors)]
    rows = [
        [_shorten(line.get(name), name == "index") for name in names] for line in errors
    ]
    titles = [_ERROR_COLUMNS[name] for name in names]
    caption = f"{len(errors)} errors, the worst first"
    return [Heading("Errors"), Table(caption, titles, rows, stacked=True)]


def _shorten(value: Any, is_name: bool) -> Any:
    """Returns a value whose text does not fill the page; the index is a name."""
    if value is None or (isinstance(value, int | float) and not is_name):
        return value
    text = str(value) if is_name else as_text(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


def _lengths(report: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    if report.get("useful_token_rate") is not None:
        rate = f"{report['useful_token_rate']:.1%}"
        blocks.append(Facts("Padding", {"useful tokens of a training batch": rate}))
    found = {k: v for k, v in report.get("lengths", {}).items() if len(v["values"])}
    if not found:
        return blocks
    rows = [
        {
            "split": split,
            "examples": one["examples"],
            "rows": len(one["values"]),
            "mean tokens of a row": statistics.fmean(one["values"]),
            "median": statistics.median_low(one["values"]),
            "longest row": max(one["values"]),
            "limit": one["max_seq_length"],
            "cut examples": one["truncated"],
            "share of the examples": f"{one['truncated'] / (one['examples'] or 1):.2%}",
        }
        for split, one in found.items()
    ]
    counts = {split: np.bincount(one["values"]) for split, one in found.items()}
    pictures = length_figures(counts, "row")
    return [*blocks, Table.of("Lengths by split", rows), *pictures]


def length_figures(
    counts: Mapping[str, Sequence[int]], unit: str = "example"
) -> list[Block]:
    """Returns pictures of lengths in tokens.

    Args:
        counts: By name, the number of examples of each length from 0.
        unit: str. What has such a length.
    """
    return [
        Figures(
            [
                Figure(
                    draw_lengths(np.asarray(lengths), PAGE_DPI, unit),
                    f"Histogram of the lengths of {sum(lengths):,} {unit}s of {name}.",
                    name,
                )
                for name, lengths in counts.items()
            ]
        )
    ]
