"""Pictures of runs and of answers show the numbers that they are given."""

import math

import numpy as np
import pytest

from albert_tf.figure import new_plot, to_png
from albert_tf.reports import figures
from albert_tf.reports.figures import calibration_bins, most_confused, plain_name

HISTORY = [
    {"split": "train", "step": 1, "loss": 0.9, "learning_rate": 0.5, "accuracy": 0.1},
    {"split": "train", "step": 2, "loss": math.nan, "accuracy": 0.2},
    {"split": "train", "step": 3, "loss": 0.7, "accuracy": 0.3},
    {"split": "dev", "step": 2, "loss": 0.8, "f1": 0.4, "accuracy": 0.5, "total": 872},
    {"split": "dev", "step": 3, "loss": 0.6, "f1": None, "accuracy": 0.6, "total": 872},
]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, before they became pictures."""
    kept = []

    def keep(figure, dpi):
        kept.append(figure)
        return to_png(figure, dpi)

    monkeypatch.setattr(figures, "to_png", keep)
    return kept


def test_bins_contain_their_upper_end():
    bins, error = calibration_bins([[0.0, 1], [0.5, 0], [0.6, 1], [1.0, 1]], 2)
    assert bins[0] == pytest.approx((0.25, 0.5, 2))
    assert bins[1] == pytest.approx((0.8, 1.0, 2))
    assert error == pytest.approx(0.5 * 0.25 + 0.5 * 0.2)


def test_calibration_error_against_the_definition():
    rng = np.random.default_rng(7)
    confidence = rng.uniform(0, 1, 1001)
    correct = rng.uniform(0, 1, 1001) < confidence**2
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = (confidence > low) & (confidence <= low + 0.1)
        gap = abs(correct[inside].mean() - confidence[inside].mean())
        expected += inside.mean() * gap
    _, error = calibration_bins(list(zip(confidence, correct, strict=True)))
    assert error == pytest.approx(expected, abs=1e-9)


def test_calibration_of_odd_values():
    bins, error = calibration_bins([[1.0000001, True], [math.nan, True]])
    assert bins[-1] == (1.0, 1.0, 1) and error == 0
    bins, error = calibration_bins([])
    assert [count for *_, count in bins] == [0] * 10 and error == 0
    assert math.isnan(bins[0][0])


def test_most_confused():
    confusion = [[5, 2, 0], [3, 0, 2], [0, 0, 0]]
    pairs = most_confused(confusion, 2)
    assert pairs == [(1, 0, 3, 0.6), (0, 1, 2, pytest.approx(2 / 7))]
    assert len(most_confused(confusion, 9)) == 3
    assert most_confused([[4]], 5) == []


def test_confusion_shows_counts_and_shares(drawn):
    figure = figures.draw_confusion("dev", ["a", "b"], [[1, 3], [0, 0]])
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "3", "0", "0"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.25, 0.75], [0, 0]])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "correct")
    assert "1 of 4 examples are correct" in figure.alt


def test_many_labels_have_no_counts(drawn):
    labels = [f"l{i}" for i in range(13)]
    figures.draw_confusion("dev", labels, np.eye(13, dtype=int).tolist())
    assert not drawn[0].axes[0].texts


def test_scatter(drawn):
    figures.draw_scatter("dev", [[0.0, 1.0], [5.0, math.inf], [4.0, 3.0]])
    points, diagonal = drawn[0].axes[0].lines
    np.testing.assert_array_equal(points.get_xydata(), [[0, 1], [4, 3]])
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [4, 4]])
    assert figures.draw_scatter("dev", [[math.nan, 1.0]]).caption


def test_lengths_show_the_limit(drawn):
    figures.draw_token_lengths({"train": [3, 5, 8], "dev": [], "test": [4]}, 8)
    axes = drawn[0].axes[0]
    assert axes.get_legend_handles_labels()[1] == ["train", "test", "at most 8"]
    shares = axes.patches[0].get_data().values
    assert shares.sum() == pytest.approx(1) and shares[-1] == pytest.approx(1 / 3)
    assert axes.get_xlabel() == "tokens of a row"
    figures.draw_token_lengths({"train": [3, 5]}, 512)
    assert drawn[1].axes[0].get_legend_handles_labels()[1] == ["train"]


def test_seeds(drawn):
    figure = figures.draw_seeds([12, 34, 56], [0.5, math.nan, 0.75], "f1")
    axes = drawn[0].axes[0]
    assert "median 0.625" in axes.get_legend_handles_labels()[1]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["12", "34", "56"]
    assert "between 0.5 and 0.75" in figure.alt
    assert "between" not in figures.draw_seeds([1], [math.nan], "f1").alt


@pytest.mark.parametrize(
    ("name", "drawn_name"),
    [
        ("entailment", "entailment"),
        ("a" * 18, "a" * 18),
        ("a" * 19, "a" * 17 + "…"),
        ("two\n words", "two words"),
        ("$x^$", r"\$x^\$"),
        ("中文", "no. 5"),
        ("", "no. 5"),
        (" \n", "no. 5"),
        ("a\0", r"a\x00"),
        ("été Ωж", "été Ωж"),
    ],
)
def test_names_that_can_be_drawn(name, drawn_name):
    assert plain_name(name, 4) == drawn_name


@pytest.mark.parametrize("label", ["$x^$", r"\$", r"a\$b$c$", "%s", "{}", "_x", "中"])
def test_no_label_stops_the_picture(label):
    assert figures.draw_confusion("dev", [label, "b"], [[1, 0], [0, 1]]).png
    assert figures.draw_token_lengths({label: [1]}, 4).png
    assert figures.draw_seeds([label], [1.0], label).png


def lines(names, history=HISTORY, **kwargs):
    _, axes = new_plot("step", "")
    figures.plot(axes, history, names, **kwargs)
    return axes, {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_losses_by_split():
    _, drawn = lines(["loss"])
    assert drawn == {"train": [[1, 0.9], [3, 0.7]], "dev": [[2, 0.8], [3, 0.6]]}
    names = figures.loss_names([{"step": 1, "loss": 1.0}, {"start_loss": 1.0, "f1": 1}])
    assert names == ["loss", "start_loss"]


def test_metrics_by_split_and_name():
    axes, drawn = lines(["accuracy", "f1"], best_step=3)
    assert drawn.keys() == {
        "train accuracy",
        "dev accuracy",
        "dev f1",
        "selected: step 3",
    }
    assert drawn["dev f1"] == [[2, 0.4]]  # None is no value
    np.testing.assert_array_equal(axes.lines[-1].get_xdata(), [3, 3])


PERCENT = [{"split": "dev", "step": 1, "f1": 88.5, "exact": 80.0, "total": 10570}]
NINE = [{"split": "dev", "step": 1, **{f"f1_{i}": 0.1 * i for i in range(9)}}]


@pytest.mark.parametrize(
    ("history", "metric", "names"),
    [
        (HISTORY, "accuracy", ["accuracy", "f1"]),
        (HISTORY, "", []),
        (HISTORY, "elsewhere", ["f1", "accuracy"]),
        (HISTORY, "total", ["total", "f1", "accuracy"]),
        (PERCENT, "f1", ["f1", "exact"]),
        (NINE, "f1_8", ["f1_8", "f1_0", "f1_1", "f1_2", "f1_3"]),
    ],
)
def test_at_most_five_metrics_of_one_scale(history, metric, names):
    assert figures.metric_names(history, metric) == names


def test_accuracies_and_baselines_of_pretraining():
    history = [
        {"split": "train", "step": 1, "mlm_accuracy": 0.1, "grad_norm": 1.0},
        {"split": "eval", "step": 1, "mlm_accuracy": 0.2, "mlm_baseline": 0.05},
        # Held-out data of another part of the run may lack a term.
        {"split": "eval", "step": 2, "nsp_accuracy": 0.6, "nsp_baseline": 0.5},
    ]
    names = figures.metric_names(history)
    assert names == ["mlm_accuracy", "nsp_accuracy"]
    _, drawn = lines(names, history)
    assert drawn["train mlm_accuracy"] == [[1, 0.1]]
    assert drawn["eval nsp_accuracy"] == [[2, 0.6]]
    assert drawn["mlm_baseline"] == [[0, 0.05], [1, 0.05]]


@pytest.mark.parametrize(
    "history",
    [
        [],
        HISTORY[:1],
        HISTORY,
        [{"split": "$x^$", "step": 1, "$y^$": 0.5, "中": 0.2, "loss": 1.0}],
    ],
)
def test_picture(history):
    picture = figures.draw_curves(history, "accuracy", 3)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert figures.draw_curves(history, "accuracy", 3) == picture
