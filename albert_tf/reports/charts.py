"""Chooses what the page draws, and thins it without losing a peak."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from albert_tf.reports.measurements import COLLAPSED, TOKENS, Curve
from albert_tf.reports.run_files import RunFiles

# Points of a curve on the page, and of a curve of which there is one per weight.
MAX_POINTS = 2000
MAX_WEIGHT_POINTS = 500
# One number per weight, each of which has a curve in the same chart.
TRUST_RATIOS = "trust_ratios"
_TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "grad_norm": "Gradient norm before clipping",
    "tokens_per_second": "Tokens per second",
    "useful_token_rate": "Share of useful tokens",
    TRUST_RATIOS: "LAMB's trust ratios (logarithmic)",
}
# Charts come in this order: by the first that a name ends with.
_ORDER = ("loss", "accuracy", "learning_rate", "grad_norm", TRUST_RATIOS)
_LAST = ("tokens_per_second", "useful_token_rate")
_ABBREVIATIONS = {"mlm": "MLM", "sop": "SOP", "nsp": "NSP", "f1": "F1", "em": "EM"}
# Not something to look at as a curve: what measures time, and a flag.
_HIDDEN = (TOKENS, COLLAPSED)
_BASELINE = "_baseline"
_MAJORITY = "majority_accuracy"


@dataclasses.dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        run: int. Index of the run.
        label: str. What it is, in addition to the run: the split, or the weight.
        kind: str. "line", "points" or "baseline".
        curve: `Curve`. Thinned.
    """

    run: int
    label: str
    kind: str
    curve: Curve


@dataclasses.dataclass(frozen=True)
class Chart:
    """Lines that share their axes.

    Attributes:
        title: str.
        by_weight: bool. Whether the lines of a run are those of its weights.
        series: list of `Series`.
    """

    title: str
    by_weight: bool
    series: list[Series] = dataclasses.field(default_factory=list)


def make_charts(runs: Sequence[RunFiles]) -> list[Chart]:
    """Returns a chart for each thing that was measured, with the lines of all runs.

    Args:
        runs: Sequence of `RunFiles`.
    """
    charts: dict[str, Chart] = {}
    for number, run in enumerate(runs):
        curves = run.measurements.curves
        for (split, name, weight), curve in curves.items():
            if name in _HIDDEN:
                continue
            group, label = name, split
            kind = "line" if split == "train" else "points"
            if is_baseline(name) and (split, _accuracy_of(name), "") in curves:
                group, kind, label = _accuracy_of(name), "baseline", "trivial baseline"
            if weight:
                label = weight if split == "train" else f"{split} {weight}"
            limit = MAX_WEIGHT_POINTS if weight else MAX_POINTS
            chart = charts.setdefault(group, Chart(title_of(group), bool(weight)))
            chart.series.append(Series(number, label, kind, thin(curve, limit)))
    return [charts[name] for name in sorted(charts, key=place_of)]


def is_baseline(name: str) -> bool:
    """Returns whether a metric is the accuracy of the best constant answer."""
    return name.endswith((_BASELINE, _MAJORITY))


def title_of(name: str) -> str:
    """Returns what people call a metric: "MLM loss" for "mlm_loss"."""
    if name in _TITLES:
        return _TITLES[name]
    words = [_ABBREVIATIONS.get(word, word) for word in name.split("_") if word]
    text = " ".join(words) or name
    return text[:1].upper() + text[1:]


def thin(curve: Curve, limit: int) -> Curve:
    """Returns a curve with fewer points but the same peaks, valleys and gaps.

    Args:
        curve: `Curve`.
        limit: int. Maximum number of points, at least 5. A longer curve is cut into
            pieces of equal numbers of points. Of each, the smallest and largest value
            and the first that is not finite are kept, and of all, both ends.
    """
    size = len(curve.steps)
    if size <= limit:
        return curve
    pieces = (limit - 2) // 3
    kept = {0, size - 1}
    for piece in range(pieces):
        indices = range(piece * size // pieces, (piece + 1) * size // pieces)
        finite = [i for i in indices if math.isfinite(curve.values[i])]
        if finite:
            kept.add(min(finite, key=curve.values.__getitem__))
            kept.add(max(finite, key=curve.values.__getitem__))
        if len(finite) < len(indices):
            kept.add(next(i for i in indices if not math.isfinite(curve.values[i])))
    thinned = Curve()
    for i in sorted(kept):
        thinned.append(curve.steps[i], curve.values[i])
    return thinned


def as_data(runs: Sequence[RunFiles], charts: Sequence[Chart]) -> dict[str, Any]:
    """Returns what the script of the page draws, ready for JSON.

    Args:
        runs: Sequence of `RunFiles`.
        charts: Sequence of `Chart`.

    Returns:
        dict. JSON has no NaN and no infinity: they are the strings "NaN", "Infinity"
        and "-Infinity".
    """
    return {
        "runs": [_run_data(run) for run in runs],
        "charts": [
            {
                "title": chart.title,
                "byWeight": chart.by_weight,
                "series": [
                    {
                        "run": series.run,
                        "label": series.label,
                        "kind": series.kind,
                        "x": [_number(step) for step in series.curve.steps],
                        "y": [_number(value) for value in series.curve.values],
                    }
                    for series in chart.series
                ],
            }
            for chart in charts
        ],
    }


def _run_data(run: RunFiles) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": run.name,
        "clock": None,
        "rollbacks": [
            {"step": one.diverged_at, "text": one.describe()} for one in run.rollbacks
        ],
    }
    clock, tokens = run.measurements.clock, run.measurements.tokens
    if clock is not None:
        # Both have the same steps and rise with them, so that thinning by position
        # keeps them true.
        size = len(clock.steps)
        count = min(size, MAX_WEIGHT_POINTS)
        chosen = sorted(
            {round(i * (size - 1) / max(count - 1, 1)) for i in range(count)}
        )
        data["clock"] = {
            "step": [_number(clock.steps[i]) for i in chosen],
            "hours": [_number(clock.values[i] / 3600) for i in chosen],
            "tokens": [_number(tokens.values[i]) for i in chosen],
        }
    return data


def _accuracy_of(baseline: str) -> str:
    """Returns the metric that a baseline is that of."""
    if baseline.endswith(_MAJORITY):
        return baseline.removesuffix(_MAJORITY) + "accuracy"
    return baseline.removesuffix(_BASELINE) + "_accuracy"


def place_of(name: str) -> tuple[int, int, str]:
    """Returns what sorts metrics: losses, accuracies, others, and how training went."""
    if name in _LAST:
        return len(_ORDER) + 1, _LAST.index(name), name
    for place, ending in enumerate(_ORDER):
        if name.endswith(ending):
            return place, len(name), name
    # The charts of other metrics, after the accuracies.
    return _ORDER.index("accuracy"), 1000, name


def _number(value: float) -> float | int | str:
    """Returns a number for JSON, of 7 digits as those of float32."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value) and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.7g}")
