"""Lines of a log become curves, and time and tokens that add up."""

import math

import pytest

from albert_tf.reports.measurements import collect
from tests.reports.runs import lines


def points(curve):
    return list(zip(curve.steps, curve.values, strict=True))


def test_curves_by_split_and_name():
    found = collect(
        [
            {"split": "train", "step": 2, "loss": 3.0, "name": "x", "ok": True},
            {"split": "eval", "step": 2, "loss": 2.5, "missing": None},
            {"split": "train", "step": 4, "loss": 1, "trust_ratios": {"a/b": 0.5}},
        ]
    )
    assert list(found.curves) == [
        ("train", "loss", ""),
        ("eval", "loss", ""),
        ("train", "trust_ratios", "a/b"),
    ]
    assert points(found.curve("train", "loss")) == [(2, 3.0), (4, 1.0)]
    assert points(found.curve("eval", "loss")) == [(2, 2.5)]
    assert points(found.curve("dev", "loss")) == []
    assert found.last_step == 4 and found.skipped == 0


def test_the_sums_of_a_stopped_run_are_no_curves():
    sums = {"split": "unfinished", "step": 4, "sums": {"loss_sum": 3.0}, "seconds": 2.0}
    found = collect([{"split": "train", "step": 4, "loss": 1.0}, sums])
    assert list(found.curves) == [("train", "loss", "")]
    assert found.skipped == 0


def test_what_is_no_measurement_is_counted():
    strange = [3, "text", None, [], {}, {"step": "2"}, {"step": True}, {"step": -1}]
    strange += [{"step": math.nan}, {"step": math.inf}, {"step": 10**400}]
    found = collect([*strange, {"step": 1, "loss": 10**400, "split": ["x"]}])
    assert found.skipped == len(strange)
    assert points(found.curve("train", "loss")) == [(1, math.inf)]


def test_time_is_tokens_by_speed():
    log = [{"tokens": 100.0, "tokens_per_second": 10.0, "step": 1}]  # compiles
    log += [{"tokens": 300.0, "tokens_per_second": 100.0, "step": s} for s in (4, 7)]
    found = collect(log)
    assert points(found.clock) == [(1, 10.0), (4, 13.0), (7, 16.0)]
    assert points(found.tokens) == [(1, 100.0), (4, 400.0), (7, 700.0)]
    assert found.recent_seconds == 1.0
    # The speed of now is that of the last lines.
    slow = {"tokens": 100.0, "tokens_per_second": 10.0}
    log += [{**slow, "step": 7 + 2 * n} for n in range(1, 11)]
    assert collect(log).recent_seconds == 5.0


@pytest.mark.parametrize(
    "changes",
    [{"tokens": None}, {"tokens_per_second": math.inf}, {"tokens": math.nan}],
    ids=str,
)
def test_unknown_times_are_not_made_up(changes):
    log = lines()
    assert collect(log).clock is not None
    log[3] = {**log[3], **changes}
    found = collect(log)
    assert found.clock is None and not found.tokens.steps
    assert found.recent_seconds is None
