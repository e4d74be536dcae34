"""Figures as PNG files: the same numbers give the same bytes.

Figures are made without pyplot, whose state is global and which looks for a screen.
Matplotlib is imported when the first figure is made.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pixels per inch of a figure in a page: 2 per pixel of the page, which has 96.
PAGE_DPI = 192


def new_figure(width: float, height: float, layout: str | None = None) -> Figure:
    """Returns an empty figure.

    Args:
        width: float. Width in inches.
        height: float. Height in inches.
        layout: str. Matplotlib's layout engine, or None to place the axes by hand.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def new_curves() -> tuple[Figure, Axes, Axes]:
    """Returns a figure with axes for losses and axes for accuracies over the steps."""
    figure = new_figure(10, 4, layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    losses.set_ylabel("loss (nats)")
    accuracies.set_ylabel("accuracy")
    for axes in (losses, accuracies):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    return figure, losses, accuracies


def new_plot(
    x: str, y: str, width: float = 5, height: float = 3.5
) -> tuple[Figure, Axes]:
    """Returns a figure with one pair of axes, narrow enough for a page on a phone.

    Args:
        x: str. Name of the x-axis.
        y: str. Name of the y-axis.
        width: float. Width in inches.
        height: float. Height in inches.
    """
    figure = new_figure(width, height, layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def to_png(figure: Figure, dpi: int = 120) -> bytes:
    """Returns the figure as a PNG.

    Args:
        figure: Figure.
        dpi: int. Pixels per inch.
    """
    buffer = io.BytesIO()
    # Without the version of matplotlib, which would change the bytes.
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
