"""Two runs on the same batches as a picture: the original's loss and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf.figure import new_figure, to_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ORIGINAL = "#f2a541"
_OURS = "#16425b"
_NOISE = "#c3cbd1"
_LOWEST = 1e-7  # height of equal losses: a logarithm cannot show 0


class LossCurves(NamedTuple):
    """The losses of two runs.

    Attributes:
        title: str. Name of the optimizer.
        original: float `[S]`. Losses of the original.
        ours: float `[S]`. Losses of this package.
        noise: float `[N]` or None. Differences of the original from itself, with
            initial weights changed in the last place.
    """

    title: str
    original: np.ndarray
    ours: np.ndarray
    noise: np.ndarray | None = None


def draw_fidelity(runs: Sequence[LossCurves]) -> bytes:
    """Returns a PNG: a column per run, losses above, their differences below."""
    figure = new_figure(4.9 * len(runs), 5.4, layout="constrained")
    grid = figure.subplots(
        2,
        len(runs),
        sharex="col",
        sharey="row",
        squeeze=False,
        height_ratios=(1.25, 1),
    )
    # Room above the curves, where a difference of 1e-3 would still be invisible.
    highest = max(1e-4, *(np.abs(run.ours - run.original).max() for run in runs))
    powers = range(-7, int(np.ceil(np.log10(highest))) + 2)
    names = ["0", *(f"$10^{{{power}}}$" for power in powers[1:])]
    grid[1, 0].set(yscale="log", ylim=(_LOWEST, 10.0 ** powers[-1]))
    grid[1, 0].set_yticks([10.0**power for power in powers], names)
    for column, run in enumerate(runs):
        _draw_losses(grid[0, column], run)
        _draw_differences(grid[1, column], run)
    grid[0, 0].set_ylabel("loss (nats)")
    grid[1, 0].set_ylabel("difference of the losses")
    return to_png(figure, 130)


def _draw_losses(axes: Axes, run: LossCurves) -> None:
    steps = np.arange(len(run.ours))
    look = {"color": _ORIGINAL, "lw": 4.5, "solid_capstyle": "round"}
    axes.plot(steps, run.original, label="the original, TensorFlow 1.15", **look)
    axes.plot(steps, run.ours, color=_OURS, lw=1, label="albert_tf")
    axes.set_title(run.title, loc="left", fontweight="bold")
    axes.legend(frameon=False)
    _clean(axes)


def _draw_differences(axes: Axes, run: LossCurves) -> None:
    difference = np.abs(run.ours - run.original)
    worst = difference.max()
    axes.set_xlabel("step")
    axes.minorticks_off()
    dots = {"ls": "", "marker": "o", "markeredgewidth": 0, "clip_on": False}
    if run.noise is not None:
        shown = np.maximum(run.noise, _LOWEST)
        label = "the original against itself,\ninitial weights changed by 1e-7"
        # Larger markers, visible around ours: both are often the same number.
        axes.plot(np.arange(len(shown)), shown, color=_NOISE, ms=6, label=label, **dots)
    shown = np.maximum(difference, _LOWEST)
    label = "albert_tf against the original"
    axes.plot(np.arange(len(shown)), shown, color=_OURS, ms=2.5, label=label, **dots)
    axes.axhline(max(worst, _LOWEST), color=_OURS, lw=0.8, ls=":")
    axes.annotate(
        f"largest: {short(worst)}",
        (1, max(worst, _LOWEST)),
        xytext=(0, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=_OURS,
    )
    axes.legend(frameon=False, loc="upper left", markerscale=1.5, fontsize=9)
    _clean(axes)


def short(value: float) -> str:
    """Returns a small number with two digits, such as "3.1e-6", or "0"."""
    if not value:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


def _clean(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0)
