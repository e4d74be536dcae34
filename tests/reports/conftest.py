"""What tests of pages share."""

import pytest

from albert_tf import figure
from albert_tf.reports import figures


@pytest.fixture
def quick(monkeypatch):
    """Pictures are made, but not painted, which takes most of the time."""
    blank = figure.to_png(figure.new_figure(1, 1))
    for module in (figure, figures):
        monkeypatch.setattr(module, "to_png", lambda figure, dpi: blank)
