"""The curves of a run show its losses and the metrics of one scale."""

import math

import numpy as np
import pytest

from albert_tf.figure import new_plot
from albert_tf.reports import curves

HISTORY = [
    {"split": "train", "step": 1, "loss": 0.9, "learning_rate": 0.5, "accuracy": 0.1},
    {"split": "train", "step": 2, "loss": math.nan, "accuracy": 0.2},
    {"split": "train", "step": 3, "loss": 0.7, "accuracy": 0.3},
    {"split": "dev", "step": 2, "loss": 0.8, "f1": 0.4, "accuracy": 0.5, "total": 872},
    {"split": "dev", "step": 3, "loss": 0.6, "f1": None, "accuracy": 0.6, "total": 872},
]


def lines(names, history=HISTORY, **kwargs):
    _, axes = new_plot("step", "")
    curves.plot(axes, history, names, **kwargs)
    return axes, {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_losses_by_split():
    _, drawn = lines(["loss"])
    assert drawn == {"train": [[1, 0.9], [3, 0.7]], "dev": [[2, 0.8], [3, 0.6]]}
    names = curves.loss_names([{"step": 1, "loss": 1.0}, {"start_loss": 1.0, "f1": 1}])
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


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        ("accuracy", ["accuracy", "f1"]),
        ("", []),
        ("elsewhere", ["f1", "accuracy"]),
        ("total", ["total", "f1", "accuracy"]),
    ],
)
def test_metrics_of_one_scale(metric, names):
    assert curves.metric_names(HISTORY, metric) == names


def test_percent():
    history = [{"split": "dev", "step": 1, "f1": 88.5, "exact": 80.0, "total": 10570}]
    assert curves.metric_names(history, "f1") == ["f1", "exact"]


def test_at_most_five_metrics():
    history = [{"split": "dev", "step": 1, **{f"f1_{i}": 0.1 * i for i in range(9)}}]
    names = curves.metric_names(history, "f1_8")
    assert names == ["f1_8", "f1_0", "f1_1", "f1_2", "f1_3"]


def test_accuracies_and_baselines_of_pretraining():
    history = [
        {"split": "train", "step": 1, "mlm_accuracy": 0.1, "grad_norm": 1.0},
        {"split": "eval", "step": 1, "mlm_accuracy": 0.2, "mlm_baseline": 0.05},
        # Held-out data of another part of the run may lack a term.
        {"split": "eval", "step": 2, "nsp_accuracy": 0.6, "nsp_baseline": 0.5},
    ]
    names = curves.metric_names(history)
    assert names == ["mlm_accuracy", "nsp_accuracy"]
    _, drawn = lines(names, history)
    assert drawn["train mlm_accuracy"] == [[1, 0.1]]
    assert drawn["eval nsp_accuracy"] == [[2, 0.6]]
    assert drawn["mlm_baseline"] == [[0, 0.05], [1, 0.05]]


def test_splits_look_different():
    history = [
        {"split": split, "step": 1, "accuracy": 0.5, "f1": 0.4}
        for split in ("train", "dev_matched", "dev_mismatched")
    ]
    for names in (["accuracy"], ["accuracy", "f1"]):
        axes, _ = lines(names, history)
        looks = [
            (line.get_color(), line.get_linestyle(), line.get_marker())
            for line in axes.lines
        ]
        assert len(set(looks)) == len(looks) == 3 * len(names)


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
    picture = curves.draw_curves(history, "accuracy", 3)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert curves.draw_curves(history, "accuracy", 3) == picture
