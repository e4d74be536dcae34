"""The same numbers give the same picture, byte by byte."""

import numpy as np
import pytest

from albert_tf.objectives.albert import ALBERT
from albert_tf.objectives.bert import BERT
from albert_tf.reports.figure import new_curves, to_png
from albert_tf.reports.finetuning_curves import draw_finetuning_curves
from albert_tf.reports.length_histogram import draw_lengths
from albert_tf.reports.pretraining_curves import draw_pretraining_curves

METRICS = [
    {"split": "train", "step": 1, "mlm_loss": 3.0, "mlm_accuracy": 0.1},
    {"split": "eval", "step": 1, "mlm_loss": 3.1, "mlm_accuracy": 0.2},
]
NSP = {"nsp_loss": 0.5, "nsp_accuracy": 0.6, "nsp_baseline": 0.5}
HISTORY = [{"split": "train", "step": 3, "loss": 1.0, "accuracy": 0.5}]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_pretraining_curves(METRICS, ALBERT.terms),
        lambda: draw_finetuning_curves(HISTORY),
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
    more = [*HISTORY, {**HISTORY[0], "step": 4}]
    assert draw_finetuning_curves(HISTORY) != draw_finetuning_curves(more)


def test_terms_of_the_objective_are_drawn(monkeypatch):
    legends = []

    def keep_legend(figure):
        legends.append([a.get_legend_handles_labels()[1] for a in figure.axes])
        return to_png(figure)

    monkeypatch.setattr("albert_tf.reports.pretraining_curves.to_png", keep_legend)
    draw_pretraining_curves([line | NSP for line in METRICS], BERT.terms)
    assert legends[0][0] == ["MLM train", "NSP train", "MLM eval", "NSP eval"]
    assert "NSP trivial baseline" in legends[0][1]
    # What the run did not measure is left out.
    draw_pretraining_curves(METRICS, BERT.terms)
    assert legends[1][0] == ["MLM train", "MLM eval"]


def test_axes_of_curves():
    _, losses, accuracies = new_curves()
    assert losses.get_ylabel() == "loss (nats)"
    assert accuracies.get_ylabel() == "accuracy"
