"""The schedule against the original's logged rates and its formula."""

import json
import pathlib

import keras
import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.optimizers.schedules import WarmupPolynomialDecay

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/tf1_train/lamb_ordered"


def rates(schedule, steps):
    return [float(keras.ops.convert_to_numpy(schedule(s))) for s in steps]


def test_equals_the_rates_the_original_logged():
    log = json.loads((GOLDEN / "log.json").read_text())
    schedule = WarmupPolynomialDecay(
        learning_rate=log["init_lr"],
        num_train_steps=log["num_train_steps"],
        num_warmup_steps=log["num_warmup_steps"],
        poly_power=log["poly_power"],
    )
    steps = [int(s) for s in log["global_step"]]
    np.testing.assert_allclose(rates(schedule, steps), log["lr_effective"], rtol=2e-7)
    # The ordered run updates step i with the rate of step i.
    assert log["lr_effective"][0] == 0.0


def test_peak_of_the_defaults_is_never_reached():
    schedule = WarmupPolynomialDecay(0.00176, 125000, 3125)
    np.testing.assert_allclose(
        rates(schedule, [3124, 3125, 125000, 200000]),
        [0.00176 * 3124 / 3125, 0.00176 * (1 - 3125 / 125000), 0, 0],
        rtol=1e-6,
    )


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_power_and_end(power):
    schedule = WarmupPolynomialDecay(
        0.3, 11, 0, poly_power=power, end_learning_rate=0.1
    )
    steps = np.arange(14)
    remaining = 1 - np.minimum(steps, 11) / 11
    np.testing.assert_allclose(
        rates(schedule, steps), 0.2 * remaining**power + 0.1, rtol=2e-6
    )


def test_start_of_warmup():
    arguments = dict(
        learning_rate=0.5, num_train_steps=20, num_warmup_steps=5, start_warmup_step=3
    )
    clamped = rates(WarmupPolynomialDecay(**arguments), range(10))
    faithful = rates(
        WarmupPolynomialDecay(**arguments, allow_negative_rate=True), range(10)
    )
    np.testing.assert_allclose(faithful[:4], [-0.3, -0.2, -0.1, 0.0], atol=1e-7)
    np.testing.assert_allclose(clamped, np.maximum(faithful, 0), atol=0)
    np.testing.assert_allclose(clamped[7:9], [0.4, 0.5 * (1 - 8 / 20)], rtol=1e-6)


def test_step_offset_shifts_the_rates():
    plain = WarmupPolynomialDecay(0.02, 20, 4)
    shifted = WarmupPolynomialDecay(0.02, 20, 4, step_offset=1)
    assert rates(shifted, range(20)) == rates(plain, range(1, 21))
    assert rates(shifted, [0])[0] == pytest.approx(0.02 / 4)


def test_serialization_round_trip():
    schedule = WarmupPolynomialDecay(
        0.02, 21, 4, 2.0, 0.001, 2, step_offset=1, allow_negative_rate=True
    )
    schedules = keras.optimizers.schedules
    again = schedules.deserialize(json.loads(json.dumps(schedules.serialize(schedule))))
    assert isinstance(again, WarmupPolynomialDecay)
    assert again.get_config() == schedule.get_config()
    assert rates(again, range(25)) == rates(schedule, range(25))


@pytest.mark.parametrize(
    "changed",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": None},
        {"num_train_steps": 0},
        {"num_train_steps": 10.5},
        {"num_train_steps": float("inf")},
        {"num_warmup_steps": 21},
        {"num_warmup_steps": -1},
        {"poly_power": 0},
        {"end_learning_rate": 0.2},
        {"end_learning_rate": -0.1},
        {"start_warmup_step": -1},
        {"step_offset": "x"},
    ],
)
def test_bad_arguments_are_named(changed):
    arguments = {"learning_rate": 0.1, "num_train_steps": 20, "num_warmup_steps": 4}
    with pytest.raises(UsageError, match=f"^{next(iter(changed))} must be .*received"):
        WarmupPolynomialDecay(**{**arguments, **changed})
