"""Evaluation during a run, and the signs of a collapse."""

import dataclasses
import math
import types

import numpy as np
import pytest

from albert_tf.objectives.finetuning import SingleLabel
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.text_classification import table_task
from albert_tf.training.evaluation import CollapseDetector, loss_bounds

TASK = table_task(("a", "b"))
TARGETS = {"labels": np.array([0] * 9 + [1])}
CHANCE = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))


class Family:
    """Says what it is told about any answers."""

    def __init__(self, reason=""):
        self.reason = reason

    def collapse(self, task, examples, answers):
        return self.reason


def detector(reason="", **kwargs):
    task = dataclasses.replace(TASK, family=Family(reason))
    return CollapseDetector(task, TARGETS, 10, 100, **kwargs)


def losses(value, until=80):
    return [
        {"split": "train", "step": step, "loss": value} for step in range(10, until, 10)
    ]


def test_chance():
    assert loss_bounds(TASK, TARGETS) == (0, pytest.approx(CHANCE))
    assert loss_bounds(find_task("stsb"), {"labels": np.ones(3)}) is None
    assert loss_bounds(find_task("wnli"), TARGETS) is None
    assert loss_bounds(TASK, TARGETS, (0.0, 0.0)) is None


@pytest.mark.parametrize("weights", [(), (0.2, 5.0), (0.0, 2.0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_bounds_are_those_of_the_loss_that_is_trained(weights, smoothing):
    """No constant answer has a lower loss than guessing; right answers have."""
    objective = SingleLabel(weights, smoothing)
    labels = TARGETS["labels"]
    right, guessing = loss_bounds(TASK, TARGETS, weights, smoothing)

    def loss(logits):
        logits = np.broadcast_to(np.asarray(logits, np.float32), (len(labels), 2))
        return float(np.mean(objective.losses(logits, labels)))

    constants = [loss([x, 0.0]) for x in np.arange(-8, 8, 0.1)]
    assert min(constants) == pytest.approx(guessing, abs=2e-3)
    # log(p) for the smoothed label as p.
    target = (1 - smoothing) * np.eye(2)[labels] + smoothing / 2
    assert loss(np.log(target + 1e-30)) == pytest.approx(right, abs=1e-5)


def test_smoothing_leaves_room_between_right_and_guessing():
    """With much smoothing, the loss of a perfect model is near that of guessing."""
    right, guessing = loss_bounds(TASK, TARGETS, (), 0.9)
    assert right > 0.97 * guessing
    judge = detector(label_smoothing=0.9).find
    assert judge(80, None, None, losses(right)) == ("", False)
    assert judge(80, None, None, losses(guessing))[0]


def test_evaluations_of_the_warm_up_are_not_judged():
    assert detector("one class").find(10, None, None, []) == ("", False)


def test_two_evaluations_in_a_row_are_certain():
    found = detector("one class").find(20, None, None, [])
    assert found == ("one class", False)
    lines = [{"split": "eval", "step": 20, "collapsed": 1.0}]
    assert detector("one class").find(30, None, None, lines) == ("one class", True)
    lines = [{"split": "eval", "step": 20}]
    assert detector("one class").find(30, None, None, lines) == ("one class", False)
    assert detector("one class").find(100, None, None, lines) == ("one class", True)


@pytest.mark.parametrize(("loss", "stays"), [(CHANCE, True), (0.8 * CHANCE, False)])
def test_a_loss_at_chance(loss, stays):
    reason, certain = detector().find(80, None, None, losses(loss))
    assert bool(reason) == stays and not certain
    # Not in the first half of the training.
    assert detector().find(40, None, None, losses(loss, 40)) == ("", False)


def test_a_weighted_loss_is_compared_with_weighted_guessing():
    weights = (0.2, 5.0)
    _, guessing = loss_bounds(TASK, TARGETS, weights)
    assert guessing > 1.2 * CHANCE
    judge = detector(class_weights=weights).find
    assert judge(80, None, None, losses(guessing))[0]
    assert not judge(80, None, None, losses(0.9 * guessing))[0]


def test_the_detector_needs_no_losses():
    line = types.MappingProxyType({"split": "eval", "step": 50})
    assert detector().find(60, None, None, [line]) == ("", False)
