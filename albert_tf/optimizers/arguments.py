"""Which schedules there are, and checks of their arguments; needs no Keras."""

import math
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import UsageError, require

SCHEDULES = ("original", "linear", "cosine", "trapezoid")
# What only the original's schedule has, with the values that change nothing.
ONLY_ORIGINAL = {
    "poly_power": 1.0,
    "start_warmup_step": 0,
    "allow_negative_rate": False,
}


def finite(name: str, value: Any) -> float:
    """Returns a finite number, or raises a UsageError that names the argument."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    require(math.isfinite(number), f"{name} must be a finite number", value)
    return number


def whole(name: str, value: Any) -> int:
    """Returns a whole number >= 0, or raises a UsageError that names the argument."""
    try:
        number = int(value)
        exact = number == value and number >= 0
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    require(exact, f"{name} must be a whole number >= 0", value)
    return number


def fraction(name: str, value: Any) -> float:
    """Returns a number in [0, 1), or raises a UsageError that names the argument."""
    number = finite(name, value)
    require(0 <= number < 1, f"{name} must be in [0, 1)", value)
    return number


def at_least_0(name: str, value: Any) -> float:
    """Returns a number >= 0, or raises a UsageError that names the argument."""
    number = finite(name, value)
    require(number >= 0, f"{name} must be >= 0", value)
    return number


def check_schedule_arguments(
    name: str,
    only_original: Mapping[str, Any],
    num_decay_steps: int | None,
    flags: str = "",
) -> None:
    """Checks that a schedule exists and that every argument means something to it.

    Args:
        name: str. Name of the schedule.
        only_original: dict. Values of arguments in `ONLY_ORIGINAL`.
        num_decay_steps: int or None.
        flags: str. What the names begin with in messages.

    Raises:
        UsageError: If not.
    """
    known = ", ".join(SCHEDULES)
    require(
        name in SCHEDULES, f"{flags}learning_rate_schedule must be one of {known}", name
    )
    for other, value in only_original.items():
        if name != "original" and value != ONLY_ORIGINAL[other]:
            raise UsageError(
                f"{flags}{other} has no meaning with {flags}learning_rate_schedule="
                f"{name}, received {value!r}"
            )
    if name != "trapezoid" and num_decay_steps is not None:
        raise UsageError(
            f"{flags}num_decay_steps requires {flags}learning_rate_schedule=trapezoid, "
            f"received {num_decay_steps!r} with {name}"
        )
