"""Evaluation during a run, and the signs of a collapse."""

import dataclasses
import functools
import json
import math
import types

import numpy as np
import pytest

from albert_tf.objectives.finetuning import SingleLabel
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.text_classification import table_task
from albert_tf.training import evaluation
from albert_tf.training.evaluation import Collapse, loss_bounds
from tests.training.runs import run

TASK = table_task(("a", "b"))
TARGETS = {"labels": np.array([0] * 9 + [1])}
SETTINGS = types.SimpleNamespace(eval_batch_size=6)
CHANCE = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))


def find(step, reason="", losses=(), evaluations=(), **changes):
    """Returns what is found at a step, if the task sees `reason` in the answers."""
    task = dataclasses.replace(TASK)
    object.__setattr__(task, "collapse", lambda examples, answers: reason)
    settings = types.SimpleNamespace(
        num_warmup_steps=10, num_train_steps=100, label_smoothing=0.0
    )
    given = types.SimpleNamespace(
        data=types.SimpleNamespace(
            task=task, train=types.SimpleNamespace(targets=TARGETS)
        ),
        settings=settings,
    )
    weights = changes.pop("class_weights", ())
    vars(settings).update(changes)
    seen = types.SimpleNamespace(examples=None, answers=None)
    return Collapse(given, weights, seen, evaluations, lambda: losses).find(step)


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

    def mean_losses(logits):
        """Returns the mean loss of each of several answers to all examples."""
        logits = np.reshape(logits, (-1, 2)).astype(np.float32)
        every = np.tile(labels, len(logits) // len(labels))
        return np.reshape(objective.losses(logits, every), (-1, len(labels))).mean(1)

    constants = [[[x, 0.0]] * len(labels) for x in np.arange(-8, 8, 0.1)]
    assert min(mean_losses(constants)) == pytest.approx(guessing, abs=2e-3)
    # log(p) for the smoothed label as p.
    target = (1 - smoothing) * np.eye(2)[labels] + smoothing / 2
    (lowest,) = mean_losses(np.log(target + 1e-30))
    assert lowest == pytest.approx(right, abs=1e-5)


def test_smoothing_leaves_room_between_right_and_guessing():
    """With much smoothing, the loss of a perfect model is near that of guessing."""
    right, guessing = loss_bounds(TASK, TARGETS, (), 0.9)
    assert right > 0.97 * guessing
    judge = functools.partial(find, 80, label_smoothing=0.9)
    assert judge(losses=losses(right)) == ("", False)
    assert judge(losses=losses(guessing))[0]


def test_the_warm_up_and_short_runs_are_not_judged():
    assert find(10, "one class") == ("", False)
    assert find(12, "one class", num_train_steps=12) == ("", False)


@pytest.mark.parametrize(
    ("step", "evaluations", "certain"),
    [
        (20, [], False),
        (30, [{"split": "eval", "step": 20, "collapsed": 1.0}], True),
        (30, [{"split": "eval", "step": 20}], False),
        (100, [{"split": "eval", "step": 20}], True),
    ],
)
def test_two_evaluations_in_a_row_are_certain(step, evaluations, certain):
    found = find(step, "one class", evaluations=evaluations)
    assert found == ("one class", certain)


@pytest.mark.parametrize(("loss", "stays"), [(CHANCE, True), (0.8 * CHANCE, False)])
def test_a_loss_at_chance(loss, stays):
    reason, certain = find(80, losses=losses(loss))
    assert bool(reason) == stays and not certain
    # Not in the first half of the training.
    assert find(40, losses=losses(loss, 40)) == ("", False)


@pytest.mark.parametrize("place", [0, 1])
def test_each_worker_computes_its_rows_of_a_batch(monkeypatch, place):
    names, seen = ["", "worker-1"], []
    step = types.SimpleNamespace(
        num_shares=1, predict=lambda batch: seen.append(batch["x"]) or batch["x"] * 10
    )
    given = types.SimpleNamespace(strategy=None, step=step, settings=SETTINGS)
    monkeypatch.setattr(evaluation, "is_one_of_several", lambda _: True)
    monkeypatch.setattr(evaluation, "helper_name", lambda _: names[place])
    monkeypatch.setattr(evaluation, "share", lambda *_: names)
    join = lambda _, rows: np.concatenate([rows - 1, rows])  # noqa: E731
    monkeypatch.setattr(evaluation, "join_rows", join)
    shape = BatchShape("text_classifier", 8, 8, 0)
    evaluator = evaluation.Evaluator(given, shape)
    assert evaluator._outputs.keywords["shape"].parts == 2
    joined = evaluator._predict({"x": np.arange(6)})
    own = np.arange(6)[3 * place :][:3]
    assert seen[0].tolist() == own.tolist()
    assert joined.tolist() == [*(own * 10 - 1), *(own * 10)]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_the_chief_decides(tables, pretrained, tmp_path, monkeypatch, caplog):
    seen = []

    def share(strategy, mine):
        seen.append(mine)
        if isinstance(mine, dict):
            return [{"loss": 0.5, "accuracy": 0.25}, mine]
        return [("one class", True) if len(seen) == 4 else ("", False), mine]

    monkeypatch.setattr(evaluation, "share", share)
    monkeypatch.setattr(evaluation, "_FEW_STEPS", 0)
    run(
        tmp_path / "run",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=4,
        eval_steps=1,
        early_stopping_patience=1,
    )
    lines = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").open()]
    assert [
        (line["step"], line["accuracy"], line.get("collapsed"))
        for line in lines
        if line["split"] == "eval"
    ] == [(1, 0.25, None), (2, 0.25, 1.0)]
    assert seen[0]["accuracy"] != 0.25
    assert "training collapsed at step 2: one class" in caplog.text
