"""A fine-tuned model's right and wrong answers, as sections of a page.

A report is a dict, as in `report.json`. All of it is optional:

- `task`, `model`: names of the task, and of the fine-tuned or evaluated model,
- `metric`, `best_step`: the metric that selects the checkpoint, and the selected step,
- `warnings`: messages that the reader must see, such as a collapse,
- `results`: metrics by name, or such dicts by split,
- `splits`: by split, the result of `Task.report`: any of
    - `labels`, list of str, and `confusion`, int `[C, C]`, rows = correct,
    - `scatter`, list of (label, prediction),
    - `per_class`, list of `{"label", "precision", "recall", "f1", "support"}`,
    - `calibration`, list of (confidence, whether the answer is correct),
    - `errors`, list of `{"index", "text", "label", "prediction", "score",
      "truncated"}`, worst first,
    - `groups`, list of `{"name", <metric>: value}`,
- `lengths`: by split, `values`, tokens of each row, of which an example may have
  several; `max_seq_length`; `examples` and `truncated`, the numbers of all examples and
  of those that lost text,
- `useful_token_rate`: share of the tokens of the training batches that are not padding.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.reports import figures
from albert_tf.reports.page import Table, as_setting, as_text, flatten, render

_NUM_PAIRS = 10  # of labels confused most often, next to the matrix
_ONLY_PAIRS = 30  # the same without a matrix
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
    return render("evaluation", title, ", ".join(names), found=answers_of(report))


def answers_of(
    report: Mapping[str, Any], trials: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the values with which `answers.html.j2` shows the answers of a model.

    The report may be empty; `trials` are the record of several seeds in `metrics.json`.
    """
    lengths = {k: v for k, v in report.get("lengths", {}).items() if len(v["values"])}
    counts = {split: np.bincount(one["values"]) for split, one in lengths.items()}
    return {
        **{n: report.get(n) for n in ("metric", "best_step", "useful_token_rate")},
        "results": _results(report.get("results", {}), report.get("metric")),
        "seeds": _seeds(trials) if trials else None,
        "splits": {
            split: _answers_on(split, content)
            for split, content in report.get("splits", {}).items()
        },
        "lengths": _lengths(lengths),
        "histograms": figures.draw_histograms(counts, "row"),
    }


def _results(results: Mapping[str, Any], metric: str | None) -> list[Table]:
    """Returns the metrics by split, and the metrics without a split."""
    by_split = {k: flatten(v) for k, v in results.items() if isinstance(v, Mapping)}
    flat = {k: v for k, v in results.items() if not isinstance(v, Mapping)}
    return [
        Table.across("Metrics by split", "metric", by_split, metric),
        Table.across("Metrics", "metric", {"value": flat}, metric),
    ]


def _seeds(trials: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the results of several seeds side by side."""
    metric, runs = trials.get("metric") or "result", trials["runs"]
    results = [run.get("value") for run in runs]
    values = [v for v in results if isinstance(v, int | float) and math.isfinite(v)]
    summary: dict[str, Any] = {"seeds": len(runs)}
    if values:
        summary["median"] = statistics.median(values)
        summary |= {"lowest": min(values), "highest": max(values)}
    if len(values) > 1:
        summary["standard deviation"] = statistics.stdev(values)
    names = [run.get("name") for run in runs]
    is_selected = [name is not None and name == trials.get("best") for name in names]
    rows = [
        {"name": name, "seed": as_setting(run.get("seed")), metric: run.get("value")}
        | {"selected": is_best}
        for run, name, is_best in zip(runs, names, is_selected, strict=True)
    ]
    marked = is_selected.index(True) if True in is_selected else None
    return {
        "summary": (f"The {metric} over seeds", summary),
        "table": Table.of("Results by seed", rows, marked=marked),
    }


def _answers_on(split: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables and pictures about the answers on a split."""
    labels, confusion = content.get("labels", ()), content.get("confusion", ())
    scatter = content.get("scatter", ())
    return {
        "groups": Table.of("Metrics by group", content.get("groups") or ()),
        "labels": Table.of("Metrics by label", content.get("per_class") or ()),
        "confusion": _confusion(split, labels, confusion) if len(confusion) else None,
        "scatter": [figures.draw_scatter(split, scatter)] if len(scatter) else None,
        "calibration": _calibration(split, content.get("calibration", ())),
        "errors": _errors(content.get("errors", ())),
    }


def _confusion(
    split: str, labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Returns the matrix unless it is too large, and the labels confused most often."""
    is_drawn = len(labels) <= figures.MAX_LABELS
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
        if row != column and count > 0
    )
    rows = [
        {
            "correct": labels[row],
            "predicted": labels[column],
            "examples": -count,
            "share of the correct label": -count / sum(confusion[row]),
        }
        for count, row, column in pairs[: _NUM_PAIRS if is_drawn else _ONLY_PAIRS]
    ]
    drawn = [figures.draw_confusion(split, labels, confusion)] if is_drawn else []
    return {"pictures": drawn, "pairs": Table.of("Labels confused most often", rows)}


def _calibration(
    split: str, calibration: Sequence[Sequence[Any]]
) -> dict[str, Any] | None:
    bins = figures.calibration_bins(calibration)
    total = bins.counts.sum()
    if not total:
        return None
    facts = {
        "expected calibration error": bins.error,
        "mean confidence": bins.confidences.sum() / total,
        "accuracy": bins.correct.sum() / total,
        "answers": total,
    }
    return {"facts": facts, "pictures": [figures.draw_calibration(split, bins)]}


def _errors(errors: Sequence[Mapping[str, Any]]) -> Table:
    names = [name for name in _ERROR_COLUMNS if any(name in line for line in errors)]
    rows = [
        [_shorten(line.get(name), name == "index") for name in names] for line in errors
    ]
    titles = [_ERROR_COLUMNS[name] for name in names]
    return Table(f"{len(errors)} errors, the worst first", titles, rows, stacked=True)


def _shorten(value: Any, is_name: bool) -> Any:
    """Returns a value with its text shortened for the page; the index is a name."""
    if value is None or (isinstance(value, int | float) and not is_name):
        return value
    text = str(value) if is_name else as_text(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


def _lengths(lengths: Mapping[str, Mapping[str, Any]]) -> Table:
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
        for split, one in lengths.items()
    ]
    return Table.of("Lengths by split", rows)
