"""The lengths of the examples of a data set as a picture."""

import numpy as np

from albert_tf.reports.figure import new_figure, to_png


def draw_lengths(lengths: np.ndarray, dpi: int = 120) -> bytes:
    """Returns a PNG of the number of examples of each length.

    Args:
        lengths: int `[S + 1]`. Numbers of examples of length 0, 1, ... S.
        dpi: int. Pixels per inch.
    """
    size = len(lengths) - 1
    figure = new_figure(6, 3)
    # Fixed margins that leave room for the labels; computing them takes half a second.
    axes = figure.add_axes((0.13, 0.17, 0.84, 0.78))
    axes.hist(np.arange(size + 1), bins=min(size, 64), range=(1, size), weights=lengths)
    axes.set_yscale("log" if lengths.max() > 50 else "linear")
    axes.set(xlabel="tokens of an example", ylabel="examples")
    return to_png(figure, dpi)
