"""Pictures of studies: scores of several seeds, in panels with one legend."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from albert_tf.figure import new_figure, to_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinguishable with any colour vision, and by markers (Okabe and Ito's palette).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
_MARKERS = "osD^v"
_BASELINE = {"color": "#5f6b76", "lw": 1}
_STYLES = ("--", ":")


class Point(NamedTuple):
    """Scores of all seeds of one curve at one x.

    Attributes:
        x: float. Position, such as CPU seconds of training.
        mean: float. Mean of the seeds.
        lowest: float. The worst seed's.
        highest: float. The best seed's.
    """

    x: float
    mean: float
    lowest: float
    highest: float


class Panel(NamedTuple):
    """One pair of axes.

    Attributes:
        title: str.
        metric: str. Name of the scores.
        curves: dict. Points of each objective, or the like, by its name, by rising x.
        baselines: dict. Scores that took no training, by name.
        x: str. Name of the x-axis.
        ticks: dict. Texts of places on the x-axis; empty for numbers from 0.
        log: bool. Whether the x-axis is logarithmic.
        joined: bool. Whether a line joins the points of a curve.
    """

    title: str
    metric: str
    curves: Mapping[str, Sequence[Point]]
    baselines: Mapping[str, float]
    x: str = "CPU seconds of pretraining"
    ticks: Mapping[float, str] = MappingProxyType({})
    log: bool = False
    joined: bool = True


def draw_study(grid: Sequence[Sequence[Panel]], share_y: bool = True) -> bytes:
    """Returns a PNG of a grid of panels; the spread is that of the seeds.

    Args:
        grid: sequence of rows of `Panel`, equally long.
        share_y: bool. Whether the panels of a row have one scale, as those of one task.
    """
    width, height = 3.3 * len(grid[0]), 3.0 * len(grid) + 0.6
    figure = new_figure(width, height, layout="constrained")
    axes = figure.subplots(
        len(grid), len(grid[0]), sharey="row" if share_y else "none", squeeze=False
    )
    panels = [panel for row in grid for panel in row]
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    lines: dict[str, object] = {}
    for one, panel in zip(axes.flat, panels, strict=True):
        lines |= _draw(one, panel, names)
        one.set_xlabel(panel.x)
        one.set_ylabel(panel.metric)
        if share_y:
            one.label_outer()
    labels, handles = list(lines), list(lines.values())
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    return to_png(figure, 130)


def points(scores: Mapping[float, Sequence[float]]) -> list[Point]:
    """Returns the points of a curve.

    Args:
        scores: dict. Scores of all seeds by x.
    """
    return [
        Point(x, statistics.fmean(found), min(found), max(found))
        for x, found in sorted(scores.items())
    ]


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> dict[str, object]:
    """Draws a panel; returns its lines by name."""
    lines = {}
    for name, curve in panel.curves.items():
        number = names.index(name)
        places, means, lowest, highest = zip(*curve, strict=True)
        below = [mean - low for mean, low in zip(means, lowest, strict=True)]
        above = [high - mean for mean, high in zip(means, highest, strict=True)]
        lines[name] = axes.errorbar(
            places,
            means,
            yerr=(below, above),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            ms=4.5,
            lw=1.3 if panel.joined else 0,
            elinewidth=1.3,
            capsize=2.5,
        )
    for number, (name, score) in enumerate(panel.baselines.items()):
        style = _STYLES[number % len(_STYLES)]
        lines[name] = axes.axhline(score, ls=style, **_BASELINE)
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    places = [point.x for curve in panel.curves.values() for point in curve]
    if panel.log:
        axes.set_xscale("log")
    elif not panel.ticks:
        axes.set_xlim(0, 1.05 * max(places))
    if panel.ticks:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axes.minorticks_off()
        axes.margins(x=0.12)
    return lines
