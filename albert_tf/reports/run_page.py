"""Makes the page of runs: tables, and curves that a small script draws."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.figure import drawn_if_possible
from albert_tf.reports.figures import draw_curves, draw_histograms
from albert_tf.reports.page import (
    Figure,
    Table,
    as_setting,
    as_text,
    clean,
    flatten,
    render,
)
from albert_tf.reports.run_files import PRETRAINING, Curve, RunFiles, read_run
from albert_tf.reports.samples import sample_tables, show_masks
from albert_tf.reports.task_report import answers_of
from albert_tf.training.metrics_file import CURVES_FILE, PAGE_FILE

# Parts of the data card that are numbers, not lists of files.
_CARD_PARTS = ("splits", "corpus", "examples", "masks", "tokenizer")
_UNKNOWN = "–"
# Metrics that do not measure the quality of a model have a last value, but no best one.
# The charts of some of them come last.
_LAST = ("tokens_per_second", "useful_token_rate", "loss_scale", "skipped_steps")
_NOT_RATED = ("learning_rate", "grad_norm", *_LAST)
_LOWER_IS_BETTER = ("loss", "perplexity", "error", "mse", "mae")
# Different places of output do not count as a difference between runs.
_PLACES = ("output_dir",)
# Maximum numbers of points of a curve, and of a curve of a single weight.
MAX_POINTS = 2000
MAX_WEIGHT_POINTS = 500
# One number per weight; each has a curve in the same chart.
_TRUST_RATIOS = "trust_ratios"
_TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "grad_norm": "Gradient norm before clipping",
    "tokens_per_second": "Tokens per second",
    "useful_token_rate": "Share of useful tokens",
    _TRUST_RATIOS: "LAMB's trust ratios (logarithmic)",
}
# Charts are ordered by the first of these with which a name ends.
_ORDER = ("loss", "accuracy", "learning_rate", "grad_norm", _TRUST_RATIOS)
_ABBREVIATIONS = {
    n: n.upper() for n in ("mlm", "sop", "nsp", "sbo", "rtd", "auc", "f1", "em")
}
_BASELINE, _MAJORITY = "_baseline", "majority_accuracy"


def render_runs(
    runs: Sequence[RunFiles],
    cost_per_hour: float | None = None,
    prompts: Sequence[str] = (),
    answers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> bytes:
    """Returns the page of runs as an HTML file, with outputs of `answer_all` by run."""
    names = [run.name for run in runs]
    kinds = dict.fromkeys(run.kind for run in runs)
    charts = make_charts(runs)
    data = {"runs": [run_data(run) for run in runs], "charts": charts}
    return render(
        "runs",
        f"{len(runs)} runs" if len(runs) > 1 else names[0],
        f"{' and '.join(kinds)}: {', '.join(names)}",
        data=data if charts else None,
        runs=runs,
        notices=[notice for run in runs for notice in run.notices],
        drawn=bool(charts),
        cost_per_hour=cost_per_hour,
        overview=overview(runs, cost_per_hour),
        values=last_and_best(runs),
        answered={run.name: answers_of(run.report, run.trials) for run in runs},
        left_out=rollback_table(runs),
        differing=differing_settings(runs),
        samples=sample_tables({run.name: run.samples for run in runs}),
        checkpoints=_answers(prompts, answers or {}),
        details={run.name: _details(run) for run in runs},
        histograms={run.name: _histograms(run.data_card) for run in runs},
    )


def draw_run(
    path: str,
    name: str = "",
    record: Mapping[str, Any] | None = None,
    curves: Mapping[str, Any] | None = None,
    **known: Any,
) -> dict[str, bytes]:
    """Returns page and curves of the run in a folder, as far as they can be drawn.

    The page is the one that `albert-tf report` writes. Without `curves`, arguments of
    `draw_curves`, there is only the page. `known` holds fields of `RunFiles` that the
    folder does not show yet; `name` and `record` are as in `read_run`.
    """
    contents = {}
    if curves is not None:
        with drawn_if_possible(CURVES_FILE):
            contents[CURVES_FILE] = draw_curves(read_run(path).curves, **curves)
    with drawn_if_possible(PAGE_FILE):
        run = dataclasses.replace(read_run(path, name, record), **known)
        contents[PAGE_FILE] = render_runs([run])
    return contents


def make_charts(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    """Returns a chart for each measured quantity, with the lines of all runs, for JSON.

    A chart has a `title`, whether there is a line for each weight (`byWeight`), and
    `series`, each with the index of its `run`, a `label`, which is the split or the
    weight, a `kind` ("line", "points" or "baseline"), and `x` and `y`. JSON has no NaN
    and no infinity: they are the strings "NaN", "Infinity" and "-Infinity".
    """
    charts: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(runs):
        for (split, name, weight), curve in run.curves.items():
            group, label = name, split
            kind = "line" if split == "train" else "points"
            if _is_baseline(name) and (split, _accuracy_of(name), "") in run.curves:
                group, kind, label = _accuracy_of(name), "baseline", "trivial baseline"
            if weight:
                label = weight if split == "train" else f"{split} {weight}"
            x, y = thin(curve, MAX_WEIGHT_POINTS if weight else MAX_POINTS)
            new = {"title": clean(title_of(group)), "byWeight": bool(weight)}
            series = {"run": number, "label": clean(label), "kind": kind}
            series |= {"x": _numbers(x), "y": _numbers(y)}
            charts.setdefault(group, {**new, "series": []})["series"].append(series)
    return [charts[name] for name in sorted(charts, key=_place_of)]


def _is_baseline(name: str) -> bool:
    """Returns whether a metric is the accuracy of the best constant answer."""
    return name.endswith((_BASELINE, _MAJORITY))


def _accuracy_of(baseline: str) -> str:
    """Returns the metric that a baseline belongs to."""
    if baseline.endswith(_MAJORITY):
        return baseline.removesuffix(_MAJORITY) + "accuracy"
    return baseline.removesuffix(_BASELINE) + "_accuracy"


def title_of(name: str) -> str:
    """Returns a metric's name for people: "MLM loss" for "mlm_loss"."""
    if name in _TITLES:
        return _TITLES[name]
    words = [_ABBREVIATIONS.get(word, word) for word in name.split("_") if word]
    text = " ".join(words) or name
    return text[:1].upper() + text[1:]


def _place_of(name: str) -> tuple[int, int, str]:
    """Returns a sort key of metrics: losses, accuracies, others, training speed."""
    if name in _LAST:
        return len(_ORDER) + 1, _LAST.index(name), name
    for place, ending in enumerate(_ORDER):
        if name.endswith(ending):
            return place, len(name), name
    # The charts of other metrics, after the accuracies.
    return _ORDER.index("accuracy"), 1000, name


def thin(curve: Curve, limit: int) -> Curve:
    """Returns a curve with fewer points but the same peaks, valleys and gaps.

    A curve of more than `limit` points, at least 5, is cut into pieces of equal numbers
    of points. The smallest and largest value of each and its first value that is not
    finite remain, and both ends of the curve.
    """
    size, values = len(curve.steps), curve.values
    if size <= limit:
        return curve
    picks = [0, size - 1]
    for piece in np.array_split(np.arange(size), (limit - 2) // 3):
        is_finite = np.isfinite(values[piece])
        finite = piece[is_finite]
        if len(finite):
            picks += [finite[values[finite].argmin()], finite[values[finite].argmax()]]
        picks += piece[~is_finite][:1].tolist()
    chosen = np.unique(picks)
    return Curve(curve.steps[chosen], values[chosen])


def run_data(run: RunFiles) -> dict[str, Any]:
    """Returns the script's data about a run, ready for JSON."""
    marks = [{"step": r["diverged_at"], "text": describe(r)} for r in run.rollbacks]
    data = {"name": clean(run.name), "clock": None, "rollbacks": marks}
    if clock := run.clock:
        # All arrays have the same steps and increase with them, so that thinning by
        # position keeps them true.
        size = len(clock.steps)
        number = min(size, MAX_WEIGHT_POINTS)
        chosen = np.unique(np.linspace(0, size - 1, number).round().astype(int))
        data["clock"] = {
            "step": _numbers(clock.steps[chosen]),
            "hours": _numbers(clock.seconds[chosen] / 3600),
            "tokens": _numbers(clock.tokens[chosen]),
        }
    return data


def _numbers(values: Iterable[float]) -> list[float | int | str]:
    """Returns numbers for JSON, rounded to 7 digits like float32."""
    return [_number(float(value)) for value in values]


def _number(value: float) -> float | int | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    is_whole = value == int(value) and abs(value) < 2**53
    return int(value) if is_whole else float(f"{value:.7g}")


def describe(rollback: Mapping[str, Any]) -> str:
    """Describes a divergence after which a run went back, in one line."""
    phase = rollback["phase"]
    of_phase = f" of the phase from step {phase:,}" if phase else ""
    return (
        f"diverged at step {rollback['diverged_at']:,}: loss "
        f"{_finite(rollback['loss'])}, gradient norm {_finite(rollback['grad_norm'])}; "
        f"batch {rollback['batch']:,}{of_phase} left out, back to step "
        f"{rollback['restored_step']:,}"
    )


def _finite(value: float | None) -> str:
    return "not finite" if value is None else as_text(value)


def rollback_table(runs: Sequence[RunFiles]) -> Table:
    """Returns a table of the rollbacks."""
    rollbacks = [(run.name, one) for run in runs for one in run.rollbacks]
    with_phase = any(one["phase"] for _, one in rollbacks)
    rows = [
        {
            **({"run": name} if len(runs) > 1 else {}),
            "diverged at step": one["diverged_at"],
            "loss": _finite(one["loss"]),
            "gradient norm": _finite(one["grad_norm"]),
            "batch left out": one["batch"],
            **({"of the phase from step": one["phase"]} if with_phase else {}),
            "back to step": one["restored_step"],
        }
        for name, one in rollbacks
    ]
    return Table.of("Batches left out", rows)


def overview(runs: Sequence[RunFiles], cost_per_hour: float | None) -> Table:
    """Returns the progress of the runs, with time and cost so far and remaining."""
    columns = {run.name: _progress(run, cost_per_hour) for run in runs}
    return Table.across("Runs", "", columns)


def _progress(run: RunFiles, cost_per_hour: float | None) -> dict[str, str]:
    done, last, clock = run.last_step, run.num_train_steps, run.clock
    share = f"{done / last:.0%} done" if last and done < last else "not finished"
    left = None
    if not run.is_finished and last and clock and clock.step_seconds is not None:
        left = max(0, last - done) * clock.step_seconds
    spent = clock.seconds[-1] if clock else None
    speeds = run.curve("train", "tokens_per_second").values
    median = np.sort(speeds[np.isfinite(speeds)])
    values = {
        "kind": run.kind,
        "state": "finished" if run.is_finished else share,
        "step": f"{done:,}" + (f" of {last:,}" if last else ""),
        "training time": _known(spent, duration),
        "time left": _known(left, duration),
        "tokens": f"{clock.tokens[-1]:,.0f}" if clock else _UNKNOWN,
        "tokens per second, median": (
            f"{median[len(median) // 2]:,.0f}" if len(median) else _UNKNOWN
        ),
    }
    if cost_per_hour is not None:

        def cost(time: float) -> str:
            money = time / 3600 * cost_per_hour
            return f"{money:,.2f}" if money >= 1 or not money else f"{money:.2g}"

        values["cost so far"] = _known(spent, cost)
        values["cost of what is left"] = _known(left, cost)
    return values


def _known(value: float | None, show: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else show(value)


def duration(seconds: float) -> str:
    """Returns a time in a readable form: "1 d 2 h", "3 h 5 min", "12.3 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    shown = [f"{number:,} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2])


def last_and_best(runs: Sequence[RunFiles]) -> Table:
    """Returns a table of the last and best values of all metrics."""
    keys = {(n, split) for run in runs for split, n, weight in run.curves if not weight}
    # In the order of the charts; within a metric, training comes first.
    ordered = sorted(keys, key=lambda key: (_place_of(key[0]), key[1] != "train", key))
    rows = [
        [title_of(n), split, *(_values(n, run.curve(split, n)) for run in runs)]
        for n, split in ordered
    ]
    title = "Last values; in brackets, the best ones and their steps"
    return Table(title, ["metric", "split", *(run.name for run in runs)], rows)


def _values(name: str, curve: Curve) -> str:
    """Returns the last value of a curve, and the best one with its step."""
    steps, values = curve
    last = _text(values[-1]) if len(values) else _UNKNOWN
    is_finite = np.isfinite(values)
    if not is_finite.any() or name in _NOT_RATED or _is_baseline(name):
        return last
    sign = -1 if name.endswith(_LOWER_IS_BETTER) else 1
    best = int(np.where(is_finite, sign * values, -math.inf).argmax())
    return f"{last} ({_text(values[best])} at {int(steps[best]):,})"


def _text(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else as_text(value)


def differing_settings(runs: Sequence[RunFiles]) -> Table:
    """Returns a table of the settings in which runs differ.

    Pretraining and fine-tuning are compared by the settings that both have.
    """
    by_kind: dict[str, dict[str, None]] = {}
    for run in runs:
        by_kind.setdefault(run.kind, {}).update(dict.fromkeys(run.settings))
    first, *others = by_kind.values()
    names = [name for name in first if all(name in other for other in others)]
    rows = [
        [name, *(_setting(run.settings.get(name)) for run in runs)]
        for name in names
        if name not in _PLACES
    ]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    title = "Only the settings that differ"
    return Table(title, ["setting", *(run.name for run in runs)], rows)


def _setting(value: Any) -> str:
    return _UNKNOWN if _is_empty(value) else as_setting(value)


def _is_empty(value: Any) -> bool:
    return value in ("", None, [])


def _answers(
    prompts: Sequence[str], answers: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Table]:
    """Returns a table of the checkpoints' answers for each prompt."""
    tables = []
    for number, prompt in enumerate(prompts):
        rows = [
            {
                **({"run": run} if len(answers) > 1 else {}),
                "checkpoint": one["name"],
                "answers": show_masks(one["answers"][number]),
            }
            for run, listed in answers.items()
            for one in listed
        ]
        tables.append(Table.of(prompt, rows, stacked=True))
    return tables


def _details(run: RunFiles) -> dict[str, Mapping[str, Any]]:
    """Returns all properties of a run: titles of values by name."""
    parts = {
        name: value
        for name, value in run.data_card.items()
        if name in _CARD_PARTS or (isinstance(value, str | int) and name != "format")
    }
    card = {
        name.replace("_", " "): value
        for name, value in flatten(parts).items()
        if not isinstance(value, list)
    }
    if run.kind == PRETRAINING and not card:
        card = {"": "The data card is not where the run found it."}
    config = dict(run.config)
    with contextlib.suppress(ValueError, TypeError):
        if config:
            config["parameters"] = AlbertConfig.from_dict(config).num_parameters()
    set_values = {k: v for k, v in run.settings.items() if not _is_empty(v)}
    return {
        "Settings": {k: as_setting(v) for k, v in set_values.items()},
        "Config of the model": {k: as_setting(v) for k, v in config.items()},
        "Data card": card,
        "Environment": {k: as_setting(v) for k, v in flatten(run.environment).items()},
        "Trust ratios of the last step on record": {
            weight: curve.values[-1]
            for (split, name, weight), curve in run.curves.items()
            if (split, name) == ("train", _TRUST_RATIOS)
        },
    }


def _histograms(card: Mapping[str, Any]) -> list[Figure]:
    examples = card.get("examples")
    lengths = examples.get("length_histogram") if isinstance(examples, dict) else None
    is_list = isinstance(lengths, list) and all(type(n) is int for n in lengths)
    return draw_histograms({"the data": lengths}) if is_list and sum(lengths) else []
