"""The picture of a study of objectives: scores against the CPU seconds of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.figure import new_figure, to_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart with any colour vision, and by their markers (Okabe and Ito's palette).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
_MARKERS = "osD^v"
_BASELINE = {"color": "#5f6b76", "lw": 1}
_STYLES = ("--", ":")


class Point(NamedTuple):
    """Scores of all seeds of one objective after the same training.

    Attributes:
        seconds: float. CPU seconds of the training.
        mean: float. Mean of the seeds.
        lowest: float. The worst seed's.
        highest: float. The best seed's.
    """

    seconds: float
    mean: float
    lowest: float
    highest: float


class Panel(NamedTuple):
    """One pair of axes.

    Attributes:
        title: str.
        metric: str. What the scores are.
        curves: dict. Points of each objective by its name, by rising seconds.
        baselines: dict. Scores that took no training, by name.
    """

    title: str
    metric: str
    curves: Mapping[str, Sequence[Point]]
    baselines: Mapping[str, float]


def draw_study(grid: Sequence[Sequence[Panel]]) -> bytes:
    """Returns a PNG of a grid of panels; the spread is that of the seeds.

    Args:
        grid: sequence of rows of `Panel`, equally long. Panels of a row show one task.
    """
    width, height = 3.3 * len(grid[0]), 3.0 * len(grid) + 0.6
    figure = new_figure(width, height, layout="constrained")
    axes = figure.subplots(len(grid), len(grid[0]), sharey="row", squeeze=False)
    lines: dict[str, object] = {}
    for row, panels in enumerate(grid):
        axes[row, 0].set_ylabel(panels[0].metric)
        for column, panel in enumerate(panels):
            lines |= _draw(axes[row, column], panel)
    for one in axes[-1]:
        one.set_xlabel("CPU seconds of pretraining")
    names, handles = list(lines), list(lines.values())
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False
    )
    return to_png(figure, 130)


def _draw(axes: Axes, panel: Panel) -> dict[str, object]:
    """Draws a panel; returns its lines by name."""
    lines = {}
    for number, (name, points) in enumerate(panel.curves.items()):
        seconds, means, lowest, highest = zip(*points, strict=True)
        below = [mean - low for mean, low in zip(means, lowest, strict=True)]
        above = [high - mean for mean, high in zip(means, highest, strict=True)]
        lines[name] = axes.errorbar(
            seconds,
            means,
            yerr=(below, above),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            ms=4.5,
            lw=1.3,
            capsize=2.5,
        )
    for number, (name, score) in enumerate(panel.baselines.items()):
        style = _STYLES[number % len(_STYLES)]
        lines[name] = axes.axhline(score, ls=style, **_BASELINE)
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    most = max(p.seconds for points in panel.curves.values() for p in points)
    axes.set_xlim(0, 1.05 * most)
    return lines
