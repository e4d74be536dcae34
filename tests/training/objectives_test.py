"""Every objective through the training step: all sharings, and what must not matter."""

import functools
import itertools

import numpy as np
import pytest

from albert_tf.config import SHARING_MODES
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import distribute
from tests.training.steps import (
    make_data,
    make_rows,
    make_step,
    run_cases,
    train,
    values_of,
)

# A low rate, so that rounding does not grow until another token is drawn.
SLOWLY = {"name": "adamw", "optimizer": {"learning_rate": 1e-3, "num_train_steps": 60}}
SLOWLY["draws"] = True  # larger weights: no gradient is as small as its rounding
ONE = {**SLOWLY, "calls": [50]}
PARTS = {"kind": "mirrored", "accumulation": 2, "depth": "loop_remat"}
FLAT = {"num_hidden_layers": 1}
WAYS = {
    "one device": ONE,
    "in parts, a loop": {**ONE, **PARTS},
    "compiled": {**ONE, "calls": [2], "jit_compile": True},
    "bfloat16": {**ONE, "calls": [2], "precision": "mixed_bfloat16"},
}


def choose(often):
    """Returns all objectives; those that are not checked often are broad."""
    broad = {True: (), False: pytest.mark.broad}
    return [pytest.param(name, marks=broad[name in often]) for name in OBJECTIVES]


@pytest.fixture(scope="module")
def trained(run_forked, tmp_path_factory):
    """What an objective trains to, by way: `trained("bert")`."""

    @functools.cache
    def run(name):
        cases = {way: {**case, "learns": name} for way, case in WAYS.items()}
        return run_cases(run_forked, tmp_path_factory.mktemp(name), cases)

    return run


def has_learned(losses):
    """Returns whether the loss has fallen on the five batches, which are repeated."""
    return np.isfinite(losses).all() and np.mean(losses[-5:]) < np.mean(losses[:5])


def assert_close(one, other):
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-4)
    for name in (name for name in one if name.startswith("sum/")):
        assert other[name] == pytest.approx(one[name], rel=1e-4)
    for name, value in one.items():
        # The bias of keys is moved by rounding alone.
        if name.startswith("weight/") and not name.endswith("key/bias"):
            assert np.abs(value - other[name]).max() < 5e-5, name


# `tensorflow/step_test.py` has ALBERT's, whose two terms are as those of the others.
@pytest.mark.slow
@pytest.mark.parametrize("name", choose(["electra"]))
def test_replicas_micro_batches_and_loops_train_the_same(trained, name):
    one = trained(name)["one device"]
    assert len(set(one["losses"])) == 50 and has_learned(one["losses"])
    assert_close(one, trained(name)["in parts, a loop"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        pytest.param(*one, marks=() if one == ("albert", "none") else pytest.mark.broad)
        for one in itertools.product(OBJECTIVES, SHARING_MODES)
    ],
)
def test_the_loss_of_repeated_batches_falls(name, sharing):
    case = {"learns": name, "name": "adamw", "config": {"sharing": sharing}}
    case |= {"calls": [20], "optimizer": {"learning_rate": 0.01}}
    assert has_learned(train(**case)["losses"])


@pytest.mark.parametrize("name", choose(["albert"]))
def test_a_restored_run_continues_bitwise(name, tmp_path):
    given = {**SLOWLY, "dropout": 0.2, "config": FLAT, "learns": name}
    given["taught"] = [[1, 2]] if name == "albert" else ()
    whole, again = (make_step(**given) for _ in range(2))
    batches = make_data(make_rows())

    def train_on(step, first):
        iterator = iter(distribute(step.strategy, lambda *_: batches.skip(first)))
        losses = step.train(iterator, 3)["losses"].tolist()
        return losses, {k: v.tolist() for k, v in values_of(step).items()}

    train_on(whole, 0)
    kept = TrainingCheckpoints(
        tmp_path, whole.model, whole.optimizer, extra=whole.extra, seed=1
    )
    kept.save(wait=True)
    expected = train_on(whole, 3)
    restored = TrainingCheckpoints(
        tmp_path, again.model, again.optimizer, extra=again.extra, seed=1
    )
    restored.restore(tmp_path)
    assert restored.step == 3
    assert train_on(again, 3) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", choose(["electra"]))
def test_a_compiled_step_and_bfloat16(trained, name):
    found = trained(name)
    expected = found["one device"]["losses"][:2].tolist()
    assert found["compiled"]["losses"].tolist() == pytest.approx(expected, rel=1e-4)
    assert found["bfloat16"]["losses"].tolist() == pytest.approx(expected, rel=0.1)
