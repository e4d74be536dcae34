"""What runs have reached, as curves thinned without losing a peak and as tables."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.reports.measurements import COLLAPSED, TOKENS, Curve
from albert_tf.reports.page import Table, as_setting, as_text
from albert_tf.reports.run_files import Rollback, RunFiles, known_text

_UNKNOWN = "–"
# What does not measure the quality of a model has a last value, but no best one.
_NOT_RATED = ("learning_rate", "grad_norm", "useful_token_rate", "tokens_per_second")
_LOWER_IS_BETTER = ("loss", "perplexity", "error", "mse", "mae")
# Two runs do not differ because they write to different places.
_PLACES = ("output_dir",)
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


def make_charts(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    """Returns a chart for each thing that was measured, with the lines of all runs.

    Args:
        runs: Sequence of `RunFiles`.

    Returns:
        list of dict, ready for JSON: the `title`; whether the lines of a run are those
        of its weights (`byWeight`); and `series`, each with the index of its `run`, a
        `label`, which is the split or the weight, a `kind` ("line", "points" or
        "baseline"), and `x` and `y`. JSON has no NaN and no infinity: they are the
        strings "NaN", "Infinity" and "-Infinity".
    """
    charts: dict[str, dict[str, Any]] = {}
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
            thinned = thin(curve, MAX_WEIGHT_POINTS if weight else MAX_POINTS)
            new = {"title": title_of(group), "byWeight": bool(weight), "series": []}
            series = {"run": number, "label": label, "kind": kind}
            series["x"] = [_number(step) for step in thinned.steps]
            series["y"] = [_number(value) for value in thinned.values]
            charts.setdefault(group, new)["series"].append(series)
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


def run_data(run: RunFiles) -> dict[str, Any]:
    """Returns what the script of the page knows about a run, ready for JSON."""
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


def rollback_table(runs: Mapping[str, Sequence[Rollback]]) -> Table | None:
    """Returns a table of the rollbacks, or None without any.

    Args:
        runs: Mapping. The rollbacks by the name of the run.
    """
    found = [(name, one) for name, several in runs.items() for one in several]
    columns = {
        "run": [name for name, _ in found] if len(runs) > 1 else None,
        "diverged at step": [one.diverged_at for _, one in found],
        "loss": [known_text(one.loss) for _, one in found],
        "gradient norm": [known_text(one.grad_norm) for _, one in found],
        "batch left out": [one.batch for _, one in found],
        "of the phase from step": [one.phase for _, one in found],
        "back to step": [one.restored_step for _, one in found],
    }
    if not any(one.phase for _, one in found):
        columns["of the phase from step"] = None
    shown = {name: values for name, values in columns.items() if values is not None}
    rows = list(zip(*shown.values(), strict=True))
    return Table("Batches left out", list(shown), rows) if found else None


def overview(runs: Sequence[RunFiles], cost_per_hour: float | None) -> Table:
    """Returns how far the runs are, what it took, and what is left.

    Args:
        runs: Sequence of `RunFiles`.
        cost_per_hour: float or None. Price of an hour of the machine.
    """
    columns = [_progress(run, cost_per_hour) for run in runs]
    names = list(columns[0])
    rows = [[name, *(column[name] for column in columns)] for name in names]
    return Table("Runs", ["", *(run.name for run in runs)], rows)


def last_and_best(runs: Sequence[RunFiles]) -> Table | None:
    """Returns the last and best values of all metrics; None if there are none."""
    names: dict[tuple[str, str], None] = {}
    for run in runs:
        names |= dict.fromkeys(
            (name, split)
            for split, name, weight in run.measurements.curves
            if name not in (TOKENS, COLLAPSED) and not weight
        )
    # As the charts; of a metric, training comes first.
    ordered = sorted(names, key=lambda key: (place_of(key[0]), key[1] != "train", key))
    if not ordered:
        return None
    rows = [
        [
            title_of(name),
            split,
            *(_values(name, run.measurements.curve(split, name)) for run in runs),
        ]
        for name, split in ordered
    ]
    title = "Last values; in brackets, the best ones and their steps"
    return Table(title, ["metric", "split", *(run.name for run in runs)], rows)


def differing_settings(runs: Sequence[RunFiles]) -> Table | None:
    """Returns the settings in which runs differ; None if there are none.

    Pretraining and fine-tuning are compared by the settings that both have.
    """
    by_kind: dict[str, dict[str, None]] = {}
    for run in runs:
        by_kind.setdefault(run.kind, {}).update(dict.fromkeys(run.settings))
    first, *others = by_kind.values()
    names = [name for name in first if all(name in other for other in others)]
    rows = []
    for name in names:
        values = [_setting(run.settings, name) for run in runs]
        if name not in _PLACES and len(set(values)) > 1:
            rows.append([name, *values])
    if not rows:
        return None
    title = "Only the settings that differ"
    return Table(title, ["setting", *(run.name for run in runs)], rows)


def duration(seconds: float) -> str:
    """Returns a time as people read it: "1 d 2 h", "3 h 5 min", "12.3 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    shown = [f"{number:,} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2])


def _progress(run: RunFiles, cost_per_hour: float | None) -> dict[str, str]:
    found, last = run.measurements, run.num_train_steps
    done = found.last_step
    if run.is_finished:
        state = "finished"
    elif last and done < last:
        state = f"{done / last:.0%} done"
    else:
        state = "not finished"
    seconds = found.clock.values[-1] if found.clock else None
    left = None
    if not run.is_finished and last and found.recent_seconds is not None:
        left = max(0, last - done) * found.recent_seconds
    speeds = found.curve("train", "tokens_per_second").values
    finite = sorted(value for value in speeds if math.isfinite(value))
    values = {
        "kind": run.kind,
        "state": state,
        "step": f"{done:,}" + (f" of {last:,}" if last else ""),
        "training time": _known(seconds, duration),
        "time left": _UNKNOWN if run.is_finished else _known(left, duration),
        "tokens": f"{found.tokens.values[-1]:,.0f}" if found.clock else _UNKNOWN,
        "tokens per second, median": (
            f"{finite[len(finite) // 2]:,.0f}" if finite else _UNKNOWN
        ),
    }
    if cost_per_hour is not None:

        def cost(time: float) -> str:
            money = time / 3600 * cost_per_hour
            return f"{money:,.2f}" if money >= 1 or not money else f"{money:.2g}"

        values["cost so far"] = _known(seconds, cost)
        values["cost of what is left"] = (
            _UNKNOWN if run.is_finished else _known(left, cost)
        )
    return values


def _known(value: float | None, show) -> str:
    return _UNKNOWN if value is None else show(value)


def _setting(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    return _UNKNOWN if value in ("", None, []) else as_setting(value)


def _last(curve: Curve) -> str:
    return _text(curve.values[-1]) if curve.values else _UNKNOWN


def _text(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else as_text(value)


def _values(name: str, curve: Curve) -> str:
    """Returns the last value of a curve, and the best one with its step."""
    last = _last(curve)
    finite = [i for i, value in enumerate(curve.values) if math.isfinite(value)]
    if not finite or name in _NOT_RATED or is_baseline(name):
        return last
    lower = name.endswith(_LOWER_IS_BETTER)
    best = (min if lower else max)(finite, key=curve.values.__getitem__)
    value, step = curve.values[best], int(curve.steps[best])
    return f"{last} ({_text(value)} at {step:,})"
