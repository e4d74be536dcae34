"""Lists the schedules and checks their arguments; needs no Keras."""

import math
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import UsageError, require

SCHEDULES = ("original", "linear", "cosine", "trapezoid")
# Arguments of the original's schedule only, with the values that have no effect.
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
    """Checks that a number is positive or not negative, and `below` a bound."""
    rule = "a whole number" if kind is int else "a finite number"
    rule += " > 0" if positive else " >= 0"
    rule += f" and < {below}" if below < math.inf else ""
    try:
        result = kind(value)
        exact = kind is float or result == value  # a text may hold a float
        fits = exact and (result > 0 if positive else result >= 0) and result < below
    except (TypeError, ValueError, OverflowError):
        fits = False
    require(fits, f"{name} must be {rule}", value)
    return result


def check_schedule_arguments(
    name: str,
    only_original: Mapping[str, Any],
    num_decay_steps: int | None,
    flags: str = "",
) -> None:
    """Checks that a schedule exists and that every argument applies to it.

    `only_original` has values of arguments in `ONLY_ORIGINAL`. Raises `UsageError`, in
    which `flags` is the prefix of names.
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
