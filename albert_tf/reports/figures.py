"""Pictures: a run's curves, and what a fine-tuned model got right and wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.figure import PAGE_DPI, new_figure, new_plot, to_png
from albert_tf.reports.page import Figure, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS = 30  # of a confusion matrix as a picture
_MAX_NAME = 18  # characters of a name in a picture
_MAX_COUNTED = 12  # labels of a confusion matrix with its counts
_NUM_BINS = 10  # of a reliability diagram
_EXIT_STYLES = {"layers": "o-", "entropy": "s--", "patience": "^:"}
_EXIT_TITLES = {
    "layers": "the same for all texts",
    "entropy": "by entropy",
    "patience": "by patience",
}
# What a line of the history holds in addition to its metrics.
_NOT_METRICS = ("step", "split", "seed", "epoch", "learning_rate")
_MAX_METRICS = 5  # drawn at most, the selecting one included
_MAX_LABEL = 40  # characters of a name in a legend
_STYLES = ("o--", "s:", "^-.", "v--")  # of the splits other than train


def draw_confusion(
    split: str, labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> Figure:
    """Returns a confusion matrix, whose shades are shares of the correct label.

    Args:
        split: str. Name of the split.
        labels: Sequence of str. `C` names.
        confusion: int `[C, C]`. Numbers of examples by correct and predicted label.
    """
    counts = np.asarray(confusion, dtype=np.int64).reshape(len(labels), len(labels))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = min(max(3.5, 0.3 * len(labels) + 1.5), 8.5)
    figure, axes = new_plot("predicted", "correct", size + 1.5, size)
    axes.grid(False)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, fraction=0.045, label="share of the correct label")
    names = [plain_name(label, index) for index, label in enumerate(labels)]
    font = 9 if len(labels) <= _MAX_COUNTED else 7
    long = max(map(len, names), default=0) > 3
    rotation = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    places = range(len(labels))
    axes.set_xticks(places, names, fontsize=font, **(rotation if long else {}))
    axes.set_yticks(places, names, fontsize=font)
    if len(labels) <= _MAX_COUNTED:
        for row in places:
            for column in places:
                color = "white" if shares[row, column] > 0.5 else "black"
                look = {"ha": "center", "va": "center", "fontsize": 8, "color": color}
                axes.text(column, row, f"{counts[row, column]:,}", **look)
    alt = (
        f"Confusion matrix of {len(labels)} labels on {split}: {np.trace(counts):,} "
        f"of {counts.sum():,} examples are correct."
    )
    unnamed = [
        f"{name} is {label}"
        for index, (name, label) in enumerate(zip(names, labels, strict=True))
        if name == _number_name(index) and name != label
    ]
    return Figure(to_png(figure, PAGE_DPI), alt, ", ".join(unnamed))


def most_confused(confusion: Sequence[Sequence[int]], limit: int) -> list[tuple]:
    """Returns the pairs of labels that are confused most often.

    Args:
        confusion: int `[C, C]`. Numbers of examples by correct and predicted label.
        limit: int. Maximum number of pairs.

    Returns:
        list of (correct, predicted, number, share of the correct label's examples);
        the labels are indices.
    """
    pairs = [
        (row, column, count, count / sum(counts))
        for row, counts in enumerate(confusion)
        for column, count in enumerate(counts)
        if row != column and count > 0
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[:2]))[:limit]


def draw_scatter(split: str, scatter: Sequence[Sequence[float]]) -> Figure:
    """Returns predicted over correct scores as points.

    Args:
        split: str. Name of the split.
        scatter: (correct, predicted) scores. Those that are not finite are left out.
    """
    points, left_out = _finite(scatter)
    figure, axes = new_plot("correct score", "predicted score", 4.5, 4.5)
    correct, predicted = points.T
    alpha = min(1.0, max(0.1, 300 / max(len(points), 1)))
    axes.plot(correct, predicted, "o", markersize=3, alpha=alpha, markeredgewidth=0)
    if len(points):
        ends = [
            min(correct.min(), predicted.min()),
            max(correct.max(), predicted.max()),
        ]
        axes.plot(ends, ends, color="gray", lw=1, label="correct = predicted")
        axes.legend(fontsize=8)
    alt = f"Predicted over correct scores of {len(points):,} examples of {split}."
    return Figure(to_png(figure, PAGE_DPI), alt, left_out)


def calibration_bins(
    calibration: Sequence[tuple[float, bool]], num_bins: int = _NUM_BINS
) -> tuple[list[tuple[float, float, int]], float]:
    """Returns how confidence and accuracy agree.

    The bins have equal width and contain their upper end (Guo et al. 2017,
    arXiv:1706.04599, section 2).

    Args:
        calibration: (confidence of the answer, whether it is correct). Confidences
            that are not finite are left out.
        num_bins: int. Number of bins between 0 and 1.

    Returns:
        bins: list of (mean confidence, accuracy, number of answers), `num_bins` of
            them; NaN where a bin is empty.
        error: float. The expected calibration error, in `[0, 1]`.
    """
    pairs, _ = _finite(calibration)
    # Rounding may take a probability slightly above 1.
    confidences = pairs[:, 0].clip(0, 1)
    numbers = np.maximum(np.ceil(confidences * num_bins).astype(int) - 1, 0)
    bins, error = [], 0.0
    for number in range(num_bins):
        inside = numbers == number
        count = int(inside.sum())
        if not count:
            bins.append((math.nan, math.nan, 0))
            continue
        confidence = float(confidences[inside].mean())
        accuracy = float(pairs[inside, 1].mean())
        bins.append((confidence, accuracy, count))
        error += count / len(pairs) * abs(confidence - accuracy)
    return bins, error


def draw_calibration(split: str, calibration: Sequence[Sequence[float]]) -> Figure:
    """Returns a reliability diagram.

    Args:
        split: str. Name of the split.
        calibration: As in `calibration_bins`.
    """
    bins, _ = calibration_bins(calibration)
    pairs, left_out = _finite(calibration)
    figure, axes = new_plot("confidence", "accuracy", 4.5, 4.5)
    width = 1 / len(bins)
    lefts = [number * width for number in range(len(bins))]
    look = {"width": width, "align": "edge", "edgecolor": "white", "linewidth": 0.5}
    shares = [count / max(len(pairs), 1) for *_, count in bins]
    axes.bar(lefts, shares, color="lightgray", label="share of the answers", **look)
    kept = [(x, y) for x, y, count in bins if count]
    axes.plot([0, 1], [0, 1], color="gray", lw=1, label="confidence = accuracy")
    axes.plot([x for x, _ in kept], [y for _, y in kept], "o-", label="model")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(fontsize=8, loc="upper left")
    numbers = ", ".join(f"{x:.2f}: {y:.2f}" for x, y in kept)
    alt = f"Reliability diagram of {len(pairs):,} answers on {split}. " + (
        f"Confidence and accuracy of {len(kept)} bins: {numbers}."
    )
    caption = f"{len(bins)} bins of equal width. {left_out}".strip()
    return Figure(to_png(figure, PAGE_DPI), alt, caption)


def draw_token_lengths(
    lengths: Mapping[str, Sequence[int]], max_seq_length: int
) -> Figure:
    """Returns a histogram of the lengths of rows, as the model gets them.

    Args:
        lengths: By split, the number of tokens of each row.
        max_seq_length: int. Number of tokens of the longest possible row.
    """
    figure, axes = new_plot("tokens of a row", "share of the rows")
    longest = max(
        (max(values) for values in lengths.values() if len(values)), default=1
    )
    end = max(longest, 1)
    edges = np.linspace(0, end, min(end, 50) + 1)
    for index, (split, values) in enumerate(lengths.items()):
        if not len(values):
            continue
        heights, _ = np.histogram(values, edges)
        look = {"label": plain_name(split, index), "fill": index == 0}
        if index == 0:
            look |= {"alpha": 0.4}
        axes.stairs(heights / len(values), edges, color=f"C{index % 10}", **look)
    if longest >= max_seq_length:
        label = f"at most {max_seq_length}"
        axes.axvline(max_seq_length, color="crimson", linestyle="--", label=label)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    alt = f"Lengths of the rows of {', '.join(lengths)}; at most {max_seq_length}."
    return Figure(to_png(figure, PAGE_DPI), alt)


def draw_seeds(seeds: Sequence[Any], values: Sequence[float], metric: str) -> Figure:
    """Returns the results of several seeds side by side.

    Args:
        seeds: The seeds.
        values: float. The result of each seed; NaN if there is none.
        metric: str. Name of the results.
    """
    figure, axes = new_plot("seed", plain_name(metric, 0))
    places = range(len(seeds))
    axes.plot(places, values, "o")
    known = [value for value in values if math.isfinite(value)]
    if known:
        median = statistics.median(known)
        label = f"median {median:.4g}"
        axes.axhline(median, color="gray", lw=1, linestyle="--", label=label)
        axes.axhspan(min(known), max(known), color="C0", alpha=0.1, label="range")
        axes.legend(fontsize=8)
    long = len(seeds) > 8 or max(len(str(seed)) for seed in seeds) > 4
    names = [plain_name(str(seed), index) for index, seed in enumerate(seeds)]
    axes.set_xticks(places, names, rotation=90 if long else 0)
    axes.set_xlim(-0.5, len(seeds) - 0.5)
    ends = f" between {min(known):.4g} and {max(known):.4g}" if known else ""
    alt = f"The {metric} of {len(seeds)} seeds side by side{ends}."
    return Figure(to_png(figure, PAGE_DPI), alt)


def draw_exits(measured: Mapping[str, Any]) -> bytes:
    """Returns a PNG of the metric against the layers, and against the time.

    Args:
        measured: dict. What `inference.exit_curve.measure_exits` returned.
    """
    name = measured["metric"]
    figure = new_figure(10, 4, layout="constrained")
    by_layers, by_time = figure.subplots(1, 2, sharey=True)
    for kind, style in _EXIT_STYLES.items():
        points = [p for p in measured["points"] if p["exit"].startswith(f"{kind}:")]
        for axes, x in ((by_layers, "mean_layers"), (by_time, "time")):
            points.sort(key=lambda point, x=x: point[x])
            if points:
                axes.plot(
                    [point[x] for point in points],
                    [point[name] for point in points],
                    style,
                    label=_EXIT_TITLES[kind],
                )
    for axes in (by_layers, by_time):
        axes.axhline(measured["full"][name], color="gray", lw=1, label="whole model")
        axes.grid(alpha=0.3)
    by_layers.set(xlabel="mean number of layers", ylabel=name.replace("_", " "))
    by_time.set(xlabel="time, as a share of the whole model's")
    by_layers.legend()
    return to_png(figure)


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
    figure = new_figure(10, 4, layout="constrained")
    losses, metrics = figure.subplots(1, 2)
    for axes in (losses, metrics):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    losses.set_ylabel("loss (nats)")
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


def plain_name(name: str, index: int, length: int = _MAX_NAME) -> str:
    """Returns a name that can be drawn: short, without formulas.

    Args:
        name: str. The name.
        index: int. What to call it if the font lacks a character: "no. 1" for 0.
        length: int. Maximum number of characters.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    name = " ".join(clean(name).split())
    font = get_font(findfont(FontProperties()))
    if not name or not all(font.get_char_index(ord(c)) for c in name):
        return _number_name(index)
    if len(name) > length:
        name = name[: length - 1] + "…"
    # A dollar would start a formula.
    return name.replace("$", r"\$")


def _number_name(index: int) -> str:
    return f"no. {index + 1}"


def _finite(pairs: Sequence[Sequence[float]]) -> tuple[np.ndarray, str]:
    """Returns the finite pairs, float64 `[N, 2]`, and what to say of the others."""
    values = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    kept = values[np.isfinite(values).all(axis=1)]
    left_out = len(values) - len(kept)
    return kept, f"{left_out:,} without a finite value left out." if left_out else ""


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
