"""The schedules beside the original's, against formulas written without them."""

import json

import keras
import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.optimizers.arguments import SCHEDULES
from albert_tf.optimizers.create import create_optimizer
from albert_tf.optimizers.schedules import (
    WarmupCosineDecay,
    WarmupLinearDecay,
    WarmupPolynomialDecay,
    WarmupTrapezoid,
)

PEAK = 0.3
DECAYS = {
    "linear": WarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "trapezoid": WarmupTrapezoid,
}


def rates(schedule, steps):
    return np.array([float(keras.ops.convert_to_numpy(schedule(s))) for s in steps])


def linear(s, N, W):
    """As get_linear_schedule_with_warmup of transformers."""
    if s < W:
        return PEAK * s / max(1, W)
    return PEAK * max(0.0, (N - s) / max(1, N - W))


def cosine(s, N, W):
    if s < W:
        return PEAK * s / W
    if s >= N:
        return 0.0
    return PEAK * 0.5 * (1 + np.cos(np.pi * (s - W) / (N - W)))


def trapezoid(s, N, W, D=None):
    D = min(N // 5, N - W) if D is None else D
    if s < W:
        return PEAK * s / W
    if s >= N:
        return 0.0
    if s <= N - D:
        return PEAK
    return PEAK * (1 - np.sqrt((s - (N - D)) / D))


FORMULAS = {"linear": linear, "cosine": cosine, "trapezoid": trapezoid}


@pytest.mark.parametrize("warmup", [0, 1, 7, 28, 29])
@pytest.mark.parametrize("name", DECAYS)
def test_every_rate_is_that_of_the_formula(name, warmup):
    steps = range(35)
    found = rates(DECAYS[name](PEAK, 29, warmup), steps)
    expected = [FORMULAS[name](s, 29, warmup) for s in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert found[29:].tolist() == [0] * 6
    if warmup < 29:
        assert found[warmup] == pytest.approx(PEAK)  # no jump, unlike the original


@pytest.mark.parametrize("decay", [0, 1, 11, 22])
def test_trapezoid_decays_over_the_given_steps(decay):
    found = rates(WarmupTrapezoid(PEAK, 29, 7, num_decay_steps=decay), range(31))
    expected = [trapezoid(s, 29, 7, decay) for s in range(31)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    at_peak = np.isclose(found, PEAK)
    assert at_peak.sum() == 22 - decay + (decay > 0)


@pytest.mark.parametrize("name", DECAYS)
def test_end_and_offset(name):
    plain = DECAYS[name](PEAK, 29, 7)
    ends = DECAYS[name](PEAK, 29, 7, end_learning_rate=0.1)
    steps = range(7, 33)
    expected = 0.1 + (PEAK - 0.1) * rates(plain, steps) / PEAK
    np.testing.assert_allclose(rates(ends, steps), expected, rtol=1e-6)
    shifted = DECAYS[name](PEAK, 29, 7, step_offset=1)
    assert rates(shifted, range(30)).tolist() == rates(plain, range(1, 31)).tolist()


@pytest.mark.parametrize("name", DECAYS)
def test_serialization_round_trip(name):
    more = {"num_decay_steps": 5} if name == "trapezoid" else {}
    schedule = DECAYS[name](0.02, 21, 4, 0.001, step_offset=1, **more)
    schedules = keras.optimizers.schedules
    again = schedules.deserialize(json.loads(json.dumps(schedules.serialize(schedule))))
    assert type(again) is DECAYS[name]
    assert again.get_config() == schedule.get_config()
    assert rates(again, range(25)).tolist() == rates(schedule, range(25)).tolist()


def test_optimizer_has_the_named_schedule():
    arguments = dict(learning_rate=0.1, num_train_steps=20, num_warmup_steps=4)
    assert ("original", *DECAYS) == SCHEDULES
    found = create_optimizer("lamb", **arguments)
    assert type(found._learning_rate) is WarmupPolynomialDecay
    for name, kind in DECAYS.items():
        found = create_optimizer("adamw", **arguments, learning_rate_schedule=name)
        assert type(found._learning_rate) is kind
    found = create_optimizer(
        "lamb", **arguments, learning_rate_schedule="trapezoid", num_decay_steps=3
    )
    assert found._learning_rate.num_decay_steps == 3


@pytest.mark.parametrize("name", DECAYS)
@pytest.mark.parametrize(
    "changed",
    [
        {"learning_rate": 0.0},
        {"num_train_steps": 0},
        {"num_warmup_steps": 21},
        {"end_learning_rate": 0.2},
        {"step_offset": "x"},
    ],
)
def test_bad_arguments_are_named(name, changed):
    arguments = {"learning_rate": 0.1, "num_train_steps": 20, "num_warmup_steps": 4}
    with pytest.raises(UsageError, match=f"^{next(iter(changed))} must be .*received"):
        DECAYS[name](**{**arguments, **changed})


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"learning_rate_schedule": "step"}, "must be one of original, linear, cos"),
        ({"num_decay_steps": 3}, "num_decay_steps requires .* 3 with original"),
        ({"learning_rate_schedule": "linear", "poly_power": 2.0}, "poly_power has no"),
        (
            {"learning_rate_schedule": "cosine", "start_warmup_step": 2},
            "start_warmup_step has no meaning with learning_rate_schedule=cosine",
        ),
        (
            {"learning_rate_schedule": "trapezoid", "num_decay_steps": 17},
            "num_decay_steps must be at most .* = 16, received 17",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_refused(changed, message):
    arguments = dict(learning_rate=0.1, num_train_steps=20, num_warmup_steps=4)
    with pytest.raises(UsageError, match=message):
        create_optimizer("lamb", **arguments, **changed)
