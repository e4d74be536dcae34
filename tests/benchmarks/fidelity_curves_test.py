"""The picture of two runs shows their numbers."""

import numpy as np
import pytest

from benchmarks.fidelity_curves import LossCurves, draw_fidelity, short

LOSSES = np.linspace(9, 7, 13)


def draw(shift=0.0, **changes):
    runs = [LossCurves(name, LOSSES, LOSSES + shift) for name in ("LAMB", "AdamW")]
    return draw_fidelity([runs[0], runs[1]._replace(**changes)])


def test_the_numbers_alone_make_the_picture():
    picture = draw(1e-6)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert draw(1e-6) == picture
    assert draw_fidelity([LossCurves("LAMB", LOSSES, LOSSES)])
    pictures = [draw(), draw(1e-6), draw(2e-6), draw(noise=np.full(5, 1e-6))]
    assert len(set(pictures)) == 4


@pytest.mark.parametrize(
    "value, text", [(3.14e-6, "3.1e-6"), (0.0, "0"), (0.25, "2.5e-1"), (20, "2.0e1")]
)
def test_short(value, text):
    assert short(value) == text
