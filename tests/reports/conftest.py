"""What tests of pages share."""

import pytest

from albert_tf import figure
from albert_tf.reports import figures, inspection


@pytest.fixture
def quick(monkeypatch):
    """Pictures are made, but not painted, which takes most of the time."""
    blank = figure.to_png(figure.new_figure(1, 1))
    for module in (figure, figures):
        monkeypatch.setattr(module, "to_png", lambda figure, dpi: blank)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, before they became pictures."""
    kept, to_png = [], figure.to_png
    for module in (figures, inspection):
        keep = lambda drawn, *dpi: kept.append(drawn) or to_png(drawn, *dpi)  # noqa: E731
        monkeypatch.setattr(module, "to_png", keep)
    return kept
