"""Pictures: a run's curves, and a fine-tuned model's right and wrong answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.figure import PAGE_DPI, draw_lengths, new_figure, new_plot, to_png
from albert_tf.reports.page import Figure, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS = 30  # of a confusion matrix drawn as a picture
_MAX_NAME = 18  # characters of a name in a picture
_MAX_COUNTED = 12  # labels of a confusion matrix with its counts
_NUM_BINS = 10  # of a reliability diagram
_MAX_METRICS = 5  # maximum number drawn, including the selecting one
_MAX_LABEL = 40  # characters of a name in a legend


def draw_confusion(
    split: str, labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> Figure:
    """Returns a confusion matrix, whose shades are shares of the correct label.

    `confusion` is int `[C, C]`, numbers of examples by correct and predicted label.
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
        look = {"ha": "center", "va": "center", "fontsize": 8}
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", color=color, **look)
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


def draw_scatter(split: str, scatter: Sequence[Sequence[float]]) -> Figure:
    """Returns predicted over correct scores as points.

    `scatter` holds (correct, predicted) scores; pairs that are not finite are left out.
    """
    points, left_out = _finite(scatter)
    figure, axes = new_plot("correct score", "predicted score", 4.5, 4.5)
    alpha = min(1.0, max(0.1, 300 / max(len(points), 1)))
    axes.plot(*points.T, "o", markersize=3, alpha=alpha, markeredgewidth=0)
    if len(points):
        ends = [points.min(), points.max()]
        axes.plot(ends, ends, color="gray", lw=1, label="correct = predicted")
        axes.legend(fontsize=8)
    alt = f"Predicted over correct scores of {len(points):,} examples of {split}."
    return Figure(to_png(figure, PAGE_DPI), alt, left_out)


class Bins(NamedTuple):
    """Answers by confidence, in `_NUM_BINS` bins of equal width.

    Attributes:
        counts: int `[B]`. Number of answers.
        confidences: float64 `[B]`. Sum of their confidences.
        correct: float64 `[B]`. Number of correct answers.
        left_out: str. Statement about answers without a confidence.
    """

    counts: np.ndarray
    confidences: np.ndarray
    correct: np.ndarray
    left_out: str

    @property
    def error(self) -> float:
        """The expected calibration error, in `[0, 1]`."""
        differences = np.abs(self.confidences - self.correct)
        return float(differences.sum() / max(self.counts.sum(), 1))


def calibration_bins(calibration: Sequence[Sequence[Any]]) -> Bins:
    """Returns the agreement of confidence and accuracy.

    The bins contain their upper end (Guo et al. 2017, arXiv:1706.04599, section 2).
    `calibration` holds (confidence of the answer, whether it is correct); confidences
    that are not finite are left out.
    """
    pairs, left_out = _finite(calibration)
    # Rounding may produce a probability slightly above 1.
    confidences = pairs[:, 0].clip(0, 1)
    numbers = np.maximum(np.ceil(confidences * _NUM_BINS).astype(int) - 1, 0)
    sums = [
        np.bincount(numbers, weights, _NUM_BINS)
        for weights in (None, confidences, pairs[:, 1])
    ]
    return Bins(*sums, left_out)


def draw_calibration(split: str, bins: Bins) -> Figure:
    """Returns a reliability diagram of at least one answer."""
    figure, axes = new_plot("confidence", "accuracy", 4.5, 4.5)
    edges, total = np.linspace(0, 1, _NUM_BINS + 1), bins.counts.sum()
    look = {"fill": True, "color": "lightgray", "label": "share of the answers"}
    axes.stairs(bins.counts / total, edges, **look)
    full = bins.counts > 0
    x, y = (sums[full] / bins.counts[full] for sums in (bins.confidences, bins.correct))
    axes.plot([0, 1], [0, 1], color="gray", lw=1, label="confidence = accuracy")
    axes.plot(x, y, "o-", label="model")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(fontsize=8, loc="upper left")
    numbers = ", ".join(f"{a:.2f}: {b:.2f}" for a, b in zip(x, y, strict=True))
    alt = f"Reliability diagram of {total:,} answers on {split}. " + (
        f"Confidence and accuracy of {len(x)} bins: {numbers}."
    )
    caption = f"{_NUM_BINS} bins of equal width. {bins.left_out}".strip()
    return Figure(to_png(figure, PAGE_DPI), alt, caption)


def draw_curves(
    curves: Mapping[tuple[str, str, str], Any],
    metric: str = "",
    best_step: int | None = None,
) -> bytes:
    """Returns a PNG of losses and metrics, by split, name and weight, over the steps.

    `metric` selects the checkpoint; without one, pretraining's accuracies are drawn.
    """
    names = list(dict.fromkeys(name for _, name, weight in curves if not weight))
    losses = [name for name in names if name == "loss" or name.endswith("_loss")]
    if metric:
        # Other metrics are drawn only if they have the same scale: up to 1, or percent.
        sizes = {n: _size(curves, n) for n in names if ("eval", n, "") in curves}
        limit = 1 if sizes.get(metric, 0) <= 1 else 100
        fitting = [n for n, size in sizes.items() if n not in losses and size <= limit]
        names = list(dict.fromkeys([*([metric] if metric in sizes else []), *fitting]))
    else:
        names = [name for name in names if name.endswith("_accuracy")]
    figure = new_figure(10, 4)
    # Fixed margins that leave room for the labels; computing them takes half a second.
    figure.subplots_adjust(0.09, 0.13, 0.97, 0.94, 0.24)
    plots = figure.subplots(1, 2)
    shown = (losses, "loss (nats)"), (names[:_MAX_METRICS], "metric")
    for axes, (drawn, title) in zip(plots, shown, strict=True):
        axes.set(xlabel="step", ylabel=title)
        axes.grid(alpha=0.3)
        _plot(axes, curves, drawn)
        if best_step is not None:
            label = f"selected: step {best_step}"
            axes.axvline(best_step, color="gray", lw=1, label=label)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    return to_png(figure)


def _size(curves: Mapping[tuple[str, str, str], Any], name: str) -> float:
    values = curves["eval", name, ""].values
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _plot(
    axes: Axes, curves: Mapping[tuple[str, str, str], Any], names: Sequence[str]
) -> None:
    """Draws measurements: one color per name, points for evaluations."""
    for (split, name, weight), curve in curves.items():
        if weight or name not in names:
            continue
        index, finite = names.index(name), np.isfinite(curve.values)
        look = {"markersize": 3, "lw": 1, "color": f"C{index % 10}"}
        label = plain_name(f"{split} {name}", index, _MAX_LABEL)
        style = "-" if split == "train" else "o--"
        axes.plot(curve.steps[finite], curve.values[finite], style, label=label, **look)
        baseline = f"{name.removesuffix('_accuracy')}_baseline"
        if (split, baseline, "") in curves:
            value = curves[split, baseline, ""].values[-1]
            axes.axhline(value, linestyle=":", label=baseline, **look)


def plain_name(name: str, index: int, length: int = _MAX_NAME) -> str:
    """Returns a name that can be drawn: short, without formulas.

    If the font lacks a character of it, the name is "no. 1" for index 0. `length` is
    the maximum number of characters.
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
    """Returns the finite pairs, float64 `[N, 2]`, and a statement about the others."""
    values = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    finite = values[np.isfinite(values).all(axis=1)]
    left_out = len(values) - len(finite)
    return finite, f"{left_out:,} without a finite value left out." if left_out else ""


def draw_histograms(
    counts: Mapping[str, Sequence[int]], unit: str = "example"
) -> list[Figure]:
    """Returns pictures of lengths in tokens.

    `counts` holds, by name, the number of examples of each length from 0; `unit` is the
    noun of the things that have these lengths.
    """
    return [
        Figure(
            draw_lengths(np.asarray(lengths), PAGE_DPI, unit),
            f"Histogram of the lengths of {sum(lengths):,} {unit}s of {name}.",
            name,
        )
        for name, lengths in counts.items()
    ]
