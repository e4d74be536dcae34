"""What runs have reached, what it took, and which settings differ."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.reports.charts import is_baseline, place_of, title_of
from albert_tf.reports.measurements import COLLAPSED, TOKENS, Curve
from albert_tf.reports.page import Table, as_setting, as_text
from albert_tf.reports.run_files import RunFiles

_UNKNOWN = "–"
# What does not measure the quality of a model has a last value, but no best one.
_NOT_RATED = ("learning_rate", "grad_norm", "useful_token_rate", "tokens_per_second")
_LOWER_IS_BETTER = ("loss", "perplexity", "error", "mse", "mae")
# Two runs do not differ because they write to different places.
_PLACES = ("output_dir",)


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
