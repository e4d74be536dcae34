"""The same numbers give the same picture, byte by byte."""

import numpy as np
import pytest

from albert_tf.figure import draw_lengths
from albert_tf.reports.figures import draw_curves
from albert_tf.reports.run_files import read_log

LINE = {"split": "train", "step": 3, "loss": 1.0, "accuracy": 0.5}
CURVES = read_log([LINE])["measured"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_curves(CURVES),
        lambda: draw_lengths(np.array([0, 3, 70, 5])),
    ],
)
def test_same_bytes(draw):
    picture = draw()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"atplotlib" not in picture  # its version would change the bytes
    assert draw() == picture


def test_numbers_change_the_picture():
    assert draw_lengths(np.array([0, 3, 7])) != draw_lengths(np.array([0, 7, 3]))
    more = read_log([LINE, {**LINE, "step": 4}])["measured"]
    assert draw_curves(CURVES) != draw_curves(more)
