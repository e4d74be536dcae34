"""Evaluation during a run, and the signs of a collapse."""

import dataclasses
import math
import types

import numpy as np
import pytest

from albert_tf.tasks.registry import find_task
from albert_tf.tasks.texts.text_classification import table_task
from albert_tf.training.finetuning.evaluation import CollapseDetector, chance_loss

TASK = table_task(("a", "b"))
TARGETS = {"labels": np.array([0] * 9 + [1])}
CHANCE = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))


class Family:
    """Says what it is told about any answers."""

    def __init__(self, reason=""):
        self.reason = reason

    def collapse(self, task, examples, answers):
        return self.reason


def detector(reason="", plain=True):
    task = dataclasses.replace(TASK, family=Family(reason))
    return CollapseDetector(task, TARGETS, 10, 100, plain)


def losses(value, until=80):
    return [
        {"split": "train", "step": step, "loss": value} for step in range(10, until, 10)
    ]


def test_chance():
    assert chance_loss(TASK, TARGETS) == pytest.approx(CHANCE)
    assert chance_loss(find_task("stsb"), {"labels": np.ones(3)}) is None
    assert chance_loss(find_task("wnli"), TARGETS) is None


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


def test_a_weighted_loss_is_not_compared_with_that_of_guessing():
    reason, _ = detector(plain=False).find(80, None, None, losses(2 * CHANCE))
    assert reason == ""


def test_the_detector_needs_no_losses():
    line = types.MappingProxyType({"split": "eval", "step": 50})
    assert detector().find(60, None, None, [line]) == ("", False)
