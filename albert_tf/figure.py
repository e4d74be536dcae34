"""Figures as PNG files: the same numbers give the same bytes.

Figures are made without pyplot, whose state is global and which requires a display.
Matplotlib is imported when the first figure is made.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pixels per inch of a figure in a page: 2 per CSS pixel, of which an inch has 96.
PAGE_DPI = 192


def new_figure(width: float, height: float, layout: str | None = None) -> Figure:
    """Returns an empty figure.

    Width and height are in inches. `layout` is Matplotlib's layout engine, or None to
    place the axes by hand.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def new_plot(
    x: str, y: str, width: float = 5, height: float = 3.5
) -> tuple[Figure, Axes]:
    """Returns a figure with one pair of axes, narrow enough for a page on a phone.

    `x` and `y` are the names of the axes; width and height are in inches.
    """
    figure = new_figure(width, height, layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def to_png(figure: Figure, dpi: int = 120) -> bytes:
    """Returns the figure as a PNG; `dpi` is in pixels per inch."""
    buffer = io.BytesIO()
    # Without the version of matplotlib, which would change the bytes.
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def draw_lengths(lengths: np.ndarray, dpi: int = 120, unit: str = "example") -> bytes:
    """Returns a PNG of the number of examples of each length.

    Args:
        lengths: int `[S + 1]`. Numbers of examples of length 0, 1, ... S.
    """
    size = len(lengths) - 1
    figure = new_figure(6, 3)
    # Fixed margins that leave room for the labels; computing them takes half a second.
    axes = figure.add_axes((0.13, 0.17, 0.84, 0.78))
    axes.hist(np.arange(size + 1), bins=min(size, 64), range=(1, size), weights=lengths)
    axes.set_yscale("log" if lengths.max() > 50 else "linear")
    axes.set(xlabel=f"tokens of each {unit}", ylabel=f"{unit}s")
    return to_png(figure, dpi)


@contextlib.contextmanager
def drawn_if_possible(name: str) -> Iterator[None]:
    """Logs a failure instead of raising it: no picture is worth a trained model."""
    try:
        yield
    except Exception as e:
        reason = " ".join(str(e).split())
        logging.warning("%s: not written: %s: %s", name, type(e).__name__, reason)
