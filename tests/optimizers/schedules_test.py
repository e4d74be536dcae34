"""The schedules against formulas written without them; the original's logged rates."""

import functools
import itertools
import json

import keras
import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.optimizers.arguments import SCHEDULES
from albert_tf.optimizers.create import create_optimizer
from albert_tf.optimizers.schedules import DECAYS as ALL
from albert_tf.optimizers.schedules import WarmupPolynomialDecay, WarmupTrapezoid
from tests.tiny import GOLDEN

PEAK = 0.3
STEPS = {"learning_rate": 0.1, "num_train_steps": 20, "num_warmup_steps": 4}
DECAYS = {name: kind for name, kind in ALL.items() if name != "original"}


def rates(schedule, steps):
    return np.array([float(keras.ops.convert_to_numpy(schedule(s))) for s in steps])


def formula(name, s, N, W, end=0.0, D=None):
    """The rate of a step, without the schedules' own code."""
    if s < W:
        return PEAK * s / W
    if s >= N:
        return end
    D = min(N // 5, N - W) if D is None else D
    part = {
        # As get_linear_schedule_with_warmup of transformers.
        "linear": (N - s) / (N - W),
        "cosine": 0.5 * (1 + np.cos(np.pi * (s - W) / (N - W))),
        "trapezoid": 1 - np.sqrt(max(0, s - (N - D)) / max(1, D)),
    }[name]
    return end + (PEAK - end) * part


@pytest.mark.parametrize(
    ("warmup", "end"), [(0, 0.1), (1, 0.0), (7, 0.1), (28, 0.0), (29, 0.1)]
)
@pytest.mark.parametrize("name", DECAYS)
def test_every_rate_is_that_of_the_formula(name, warmup, end):
    found = rates(DECAYS[name](PEAK, 29, warmup, end_learning_rate=end), range(35))
    expected = [formula(name, s, 29, warmup, end) for s in range(35)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("decay", [0, 1, 11, 22])
def test_trapezoid_decays_over_the_given_steps(decay):
    found = rates(WarmupTrapezoid(PEAK, 29, 7, num_decay_steps=decay), range(31))
    expected = [formula("trapezoid", s, 29, 7, D=decay) for s in range(31)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_equals_the_rates_the_original_logged():
    log = json.loads((GOLDEN / "tf1_train/lamb_ordered/log.json").read_text())
    names = ("num_train_steps", "num_warmup_steps", "poly_power")
    options = {name: log[name] for name in names}
    schedule = WarmupPolynomialDecay(log["init_lr"], **options)
    steps = [int(s) for s in log["global_step"]]
    np.testing.assert_allclose(rates(schedule, steps), log["lr_effective"], rtol=2e-7)
    # The ordered run updates step i with the rate of step i.
    assert log["lr_effective"][0] == 0.0


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_power_and_end(power):
    options = {"poly_power": power, "end_learning_rate": 0.1}
    steps = np.arange(14)
    found = rates(WarmupPolynomialDecay(0.3, 11, 0, **options), steps)
    remaining = 1 - np.minimum(steps, 11) / 11
    np.testing.assert_allclose(found, 0.2 * remaining**power + 0.1, rtol=2e-6)


def test_start_of_warmup():
    make = functools.partial(WarmupPolynomialDecay, 0.5, 20, 5, start_warmup_step=3)
    clamped = rates(make(), range(10))
    faithful = rates(make(allow_negative_rate=True), range(10))
    np.testing.assert_allclose(faithful[:4], [-0.3, -0.2, -0.1, 0.0], atol=1e-7)
    np.testing.assert_allclose(clamped, np.maximum(faithful, 0), atol=0)
    np.testing.assert_allclose(clamped[7:9], [0.4, 0.5 * (1 - 8 / 20)], rtol=1e-6)


@pytest.mark.parametrize("kind", ALL.values())
def test_step_offset_shifts_the_rates(kind):
    plain, shifted = kind(PEAK, 29, 7), kind(PEAK, 29, 7, step_offset=1)
    assert rates(shifted, range(30)).tolist() == rates(plain, range(1, 31)).tolist()


@pytest.mark.parametrize("name", ALL)
def test_serialization_round_trip(name):
    more = {
        "trapezoid": {"num_decay_steps": 5},
        "original": {"poly_power": 2.0, "start_warmup_step": 2}
        | {"allow_negative_rate": True},
    }.get(name, {})
    schedule = ALL[name](0.02, 21, 4, end_learning_rate=0.001, step_offset=1, **more)
    schedules = keras.optimizers.schedules
    again = schedules.deserialize(json.loads(json.dumps(schedules.serialize(schedule))))
    assert type(again) is ALL[name]
    assert again.get_config() == schedule.get_config()
    assert rates(again, range(25)).tolist() == rates(schedule, range(25)).tolist()


def test_optimizer_has_the_named_schedule():
    assert tuple(ALL) == SCHEDULES
    for name, kind in ALL.items():
        found = create_optimizer("adamw", **STEPS, learning_rate_schedule=name)
        assert type(found._learning_rate) is kind
    options = {"learning_rate_schedule": "trapezoid", "num_decay_steps": 3}
    found = create_optimizer("lamb", **STEPS, **options)
    assert found._learning_rate.num_decay_steps == 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("learning_rate", (0.0, float("nan"), None)),
        ("num_train_steps", (0, 10.5, float("inf"))),
        ("num_warmup_steps", (21, -1)),
        ("poly_power", (0,)),
        ("end_learning_rate", (0.2, -0.1)),
        ("start_warmup_step", (-1,)),
        ("step_offset", ("x",)),
    ],
)
def test_bad_arguments_are_named(name, values):
    original = name in ("poly_power", "start_warmup_step")
    kinds = [WarmupPolynomialDecay] if original else ALL.values()
    for kind, value in itertools.product(kinds, values):
        with pytest.raises(UsageError, match=f"^{name} must be .*received"):
            kind(**STEPS | {name: value})


@pytest.mark.parametrize("kind", ALL.values())
def test_only_the_first_arguments_have_places_and_texts_of_numbers_count(kind):
    with pytest.raises(TypeError, match="positional"):
        kind(0.1, 20, 4, 0.1)
    assert kind("1e-3", 20, 4).learning_rate == 1e-3  # as YAML reads it


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
    with pytest.raises(UsageError, match=message):
        create_optimizer("lamb", **STEPS, **changed)
