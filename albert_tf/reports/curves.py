"""The curves of a run as a picture, for its folder and its model card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.figure import new_curves, to_png
from albert_tf.reports.figures import plain_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What a line of the history holds in addition to its metrics.
_NOT_METRICS = ("step", "split", "seed", "epoch", "learning_rate")
_MAX_METRICS = 5  # drawn at most, the selecting one included
_MAX_LABEL = 40  # characters of a name in a legend
_STYLES = ("o--", "s:", "^-.", "v--")  # of the splits other than train


def draw_curves(
    history: Sequence[Mapping[str, Any]], metric: str = "", best_step: int | None = None
) -> bytes:
    """Returns a PNG of losses and metrics over the steps.

    Args:
        history: Lines of `metrics.jsonl`, each with `split` and `step`. What is not a
            finite number is left out.
        metric: str. Name of the metric that selects the checkpoint; "" for
            pretraining, whose accuracies are drawn.
        best_step: int. Step of the selected checkpoint, or None.
    """
    figure, losses, metrics = new_curves()
    plot(losses, history, loss_names(history), best_step)
    names = metric_names(history, metric)
    plot(metrics, history, names, best_step)
    metrics.set_ylabel(plain_name(names[0], 0) if len(names) == 1 else "metric")
    return to_png(figure)


def loss_names(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of the losses of a history."""
    names = dict.fromkeys(name for line in history for name in line)
    return [name for name in names if name == "loss" or name.endswith("_loss")]


def metric_names(history: Sequence[Mapping[str, Any]], metric: str = "") -> list[str]:
    """Returns which metrics to draw on the same axes.

    These are metrics of held-out splits, the selecting metric first, and others only
    if they have the same scale: up to 1, or percent.

    Args:
        history: Lines of `metrics.jsonl`.
        metric: str. Name of the selecting metric, or "" for the accuracies.
    """
    if not metric:
        found = dict.fromkeys(name for line in history for name in line)
        return [name for name in found if name.endswith("_accuracy")]
    values: dict[str, list[float]] = {}
    for line in history:
        if line.get("split") == "train":
            continue
        for name, value in line.items():
            if name not in _NOT_METRICS and _is_finite(value):
                values.setdefault(name, []).append(value)
    names = [name for name in values if name not in loss_names(history)]
    if metric in names:
        names.sort(key=lambda name: name != metric)
    if not names:
        return []
    is_percent = max(map(abs, values[names[0]])) > 1
    limit = 100 if is_percent else 1
    kept = [name for name in names if max(map(abs, values[name])) <= limit]
    return [names[0], *(name for name in kept if name != names[0])][:_MAX_METRICS]


def plot(
    axes: Axes,
    history: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    best_step: int | None = None,
) -> None:
    """Draws values of a history over the steps: a color a name, a style a split.

    Args:
        axes: Axes.
        history: Lines of `metrics.jsonl`.
        names: Names of the values.
        best_step: int. Step of the selected checkpoint, or None.
    """
    splits = list(dict.fromkeys(line.get("split", "train") for line in history))
    held_out = [split for split in splits if split != "train"]
    for split in splits:
        is_train = split == "train"
        style = "-" if is_train else _STYLES[held_out.index(split) % len(_STYLES)]
        lines = [line for line in history if line.get("split", "train") == split]
        for index, name in enumerate(names):
            points = [(r["step"], r[name]) for r in lines if _is_finite(r.get(name))]
            if not points:
                continue
            label = split if len(names) == 1 else f"{split} {name}"
            # The splits of one value need different colors.
            color = splits.index(split) if len(names) == 1 else index
            look = {"markersize": 3, "lw": 1, "color": f"C{color % 10}"}
            label = plain_name(label, index, _MAX_LABEL)
            axes.plot(*zip(*points, strict=True), style, label=label, **look)
            baseline = f"{name.removesuffix('_accuracy')}_baseline"
            found = [r[baseline] for r in lines if _is_finite(r.get(baseline))]
            if found:
                look |= {"linestyle": ":", "label": plain_name(baseline, index)}
                axes.axhline(found[-1], **look)
    if best_step is not None:
        axes.axvline(best_step, color="gray", lw=1, label=f"selected: step {best_step}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
