"""Pictures of runs and of answers show the numbers that they are given."""

import math

import numpy as np
import pytest

from albert_tf.figure import draw_lengths
from albert_tf.reports import figures
from albert_tf.reports.figures import calibration_bins, plain_name
from albert_tf.reports.run_files import read_log

HISTORY = [
    {"split": "train", "step": 1, "loss": 0.9, "learning_rate": 0.5, "accuracy": 0.1},
    {"split": "train", "step": 2, "loss": math.nan, "accuracy": 0.2},
    {"split": "train", "step": 3, "loss": 0.7, "accuracy": 0.3},
    {"split": "eval", "step": 2, "loss": 0.8, "f1": 0.4, "accuracy": 0.5, "total": 872},
    {"split": "eval", "step": 3, "loss": 0.6, "f1": None, "accuracy": 0.6},
]


def test_calibration_error_against_the_definition():
    rng = np.random.default_rng(7)
    confidence = rng.uniform(0, 1, 1001)
    correct = rng.uniform(0, 1, 1001) < confidence**2
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = (confidence > low) & (confidence <= low + 0.1)
        gap = abs(correct[inside].mean() - confidence[inside].mean())
        expected += inside.mean() * gap
    bins = calibration_bins(list(zip(confidence, correct, strict=True)))
    assert bins.error == pytest.approx(expected, abs=1e-9)


def test_calibration_of_odd_values(drawn):
    # Bins contain their upper end.
    bins = calibration_bins([[1.0000001, True], [math.nan, True], [0.5, False]])
    assert bins.counts.tolist() == [0] * 4 + [1] + [0] * 4 + [1]
    assert bins.error == 0.25
    figure = figures.draw_calibration("dev", bins)
    assert "1 without a finite value left out." in figure.caption
    points = drawn[0].axes[0].lines[1].get_xydata().tolist()
    assert points == [[0.5, 0], [1, 1]]
    bins = calibration_bins([])
    assert bins.counts.tolist() == [0] * 10 and bins.error == 0


def test_confusion_shows_counts_and_shares(drawn):
    figure = figures.draw_confusion("dev", ["a", "b"], [[1, 3], [0, 0]])
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "3", "0", "0"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.25, 0.75], [0, 0]])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "correct")
    assert "1 of 4 examples are correct" in figure.alt
    # Many labels have no counts.
    labels = [f"l{i}" for i in range(13)]
    figures.draw_confusion("dev", labels, np.eye(13, dtype=int).tolist())
    assert not drawn[1].axes[0].texts


def test_scatter(drawn):
    figures.draw_scatter("dev", [[0.0, 1.0], [5.0, math.inf], [4.0, 3.0]])
    points, diagonal = drawn[0].axes[0].lines
    np.testing.assert_array_equal(points.get_xydata(), [[0, 1], [4, 3]])
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [4, 4]])
    assert figures.draw_scatter("dev", [[math.nan, 1.0]]).caption


@pytest.mark.parametrize(
    ("name", "drawn_name"),
    [
        ("entailment", "entailment"),
        ("a" * 18, "a" * 18),
        ("a" * 19, "a" * 17 + "…"),
        ("two\n words", "two words"),
        ("$x^$", r"\$x^\$"),
        ("中文", "no. 5"),
        (" \n", "no. 5"),
        ("a\0", r"a\x00"),
        ("été Ωж", "été Ωж"),
    ],
)
def test_names_that_can_be_drawn(name, drawn_name):
    assert plain_name(name, 4) == drawn_name


def test_no_label_stops_the_picture():
    labels = ["$x^$", r"\$", r"a\$b$c$", "%s", "{}", "_x", "中"]
    assert figures.draw_confusion("dev", labels, np.eye(7, dtype=int)).png


def test_the_same_numbers_give_the_same_bytes():
    curves = read_log(HISTORY)["measured"]
    pairs = (figures.draw_curves, curves), (draw_lengths, np.array([0, 3, 70, 5]))
    for draw, numbers in pairs:
        picture = draw(numbers)
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert b"atplotlib" not in picture  # its version would change the bytes
        assert draw(numbers) == picture


def drawn_lines(drawn, *args):
    """Returns the points by label of losses and of metrics."""
    figures.draw_curves(*args)
    return [
        {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        for axes in drawn[-1].axes
    ]


def test_losses_and_metrics_by_split(drawn):
    curves = read_log(HISTORY)["measured"]
    losses, metrics = drawn_lines(drawn, curves, "f1", 3)
    assert losses.pop("selected: step 3") == [[3, 0], [3, 1]]
    assert losses["train loss"] == [[1, 0.9], [3, 0.7]]
    assert losses["eval loss"] == [[2, 0.8], [3, 0.6]]
    # Only metrics of evaluations, and of the same scale.
    assert metrics.pop("selected: step 3")
    assert metrics["eval f1"] == [[2, 0.4]]  # None is no value
    assert metrics.keys() == {"eval f1", "train accuracy", "eval accuracy"}
    # Without a metric that selects, as in pretraining, the accuracies.
    found = [{"step": 1, "mlm_accuracy": 0.2, "mlm_baseline": 0.1, "start_loss": 1.0}]
    losses, metrics = drawn_lines(drawn, read_log(found)["measured"])
    assert losses == {"train start_loss": [[1, 1.0]]}
    assert metrics.pop("mlm_baseline") == [[0, 0.1], [1, 0.1]]
    assert metrics == {"train mlm_accuracy": [[1, 0.2]]}


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"f1": 88.5, "exact": 80.0, "total": 10570}, ["eval f1", "eval exact"]),
        ({f"f1_{i}": 0.1 * i for i in range(9)}, [f"eval f1_{i}" for i in range(5)]),
        ({"mse": 250.0}, ["eval mse"]),
        ({}, []),
    ],
)
def test_metrics_of_one_scale(drawn, values, names):
    metric = next(iter(values), "f1")
    curves = read_log([{"split": "eval", "step": 1, "loss": 9.0, **values}])["measured"]
    assert list(drawn_lines(drawn, curves, metric)[1]) == names
