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


def to_png(figure: Figure) -> bytes:
    """Returns the figure as a PNG."""
    buffer = io.BytesIO()
    # Without the version of matplotlib, which would change the bytes.
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
