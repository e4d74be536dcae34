"""Checks the arguments of schedules."""

import math
from typing import Any

from albert_tf.errors import UsageError


def require(condition: bool, name: str, constraint: str, value: Any) -> None:
    """Raises a UsageError that names the argument unless the condition holds."""
    if not condition:
        raise UsageError(f"{name} must be {constraint}, received {value!r}")


def finite(name: str, value: Any) -> float:
    """Returns a finite number, or raises a UsageError that names the argument."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    require(math.isfinite(number), name, "a finite number", value)
    return number


def whole(name: str, value: Any) -> int:
    """Returns a whole number >= 0, or raises a UsageError that names the argument."""
    try:
        number = int(value)
        exact = number == value and number >= 0
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    require(exact, name, "a whole number >= 0", value)
    return number
