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


def number(
    name: str,
    value: Any,
    kind: type = float,
    positive: bool = False,
    below: float = math.inf,
) -> Any:
    """Returns an argument as a number.

    Args:
        name: str. Name of the argument.
        value: What was given for it.
        kind: type. `int` or `float`.
        positive: bool. Whether it must be greater than 0; else it may also be 0.
        below: float. What it must be less than.

    Raises:
        UsageError: If it is not such a number.
    """
    rule = "a whole number" if kind is int else "a finite number"
    rule += " > 0" if positive else " >= 0"
    rule += f" and < {below}" if below < math.inf else ""
    try:
        found = kind(value)
        exact = kind is float or found == value  # a text may hold a float
        fits = exact and (found > 0 if positive else found >= 0) and found < below
    except (TypeError, ValueError, OverflowError):
        fits = False
    require(fits, f"{name} must be {rule}", value)
    return found


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
    schedule = f"{flags}learning_rate_schedule"
    require(
        name in SCHEDULES, f"{schedule} must be one of {', '.join(SCHEDULES)}", name
    )
    for other, value in only_original.items():
        fits = name == "original" or value == ONLY_ORIGINAL[other]
        require(fits, f"{flags}{other} has no meaning with {schedule}={name}", value)
    if name != "trapezoid" and num_decay_steps is not None:
        raise UsageError(
            f"{flags}num_decay_steps requires {schedule}=trapezoid, received "
            f"{num_decay_steps!r} with {name}"
        )
