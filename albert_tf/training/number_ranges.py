"""The ranges of the numbers in the settings of a run, checked without TensorFlow."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any

from albert_tf.errors import UsageError

_COUNTS = (int, int | None)
# Their ranges depend on other settings.
_OTHERS = ("seed", "num_decay_steps", "doc_stride")
_POSITIVE = ("learning_rate", "num_train_epochs", "poly_power")
_NOT_NEGATIVE = ("weight_decay_rate", "clip_norm", "pair_loss_weight")
_FRACTIONS = ("dev_fraction", "dropout", "label_smoothing", "ema_decay")


def check_numbers(
    settings: Any, may_be_zero: Collection[str], flags: str = "--"
) -> None:
    """Refuses numbers out of their range; None is none.

    Args:
        settings: Dataclass of settings. Its whole numbers must be positive;
            those in `_OTHERS` have ranges of their own.
        may_be_zero: collection of str. Whole numbers that may be 0.
        flags: str. What the names begin with in messages.

    Raises:
        UsageError: If a number is out of its range.
    """
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if value is None:
            continue
        is_count = field.type in _COUNTS and name not in _OTHERS
        if name in may_be_zero or name in _NOT_NEGATIVE:
            fits, rule = 0 <= value < math.inf, "must not be negative"
        elif is_count or name in _POSITIVE:
            fits, rule = 0 < value < math.inf, "must be positive"
        elif name in _FRACTIONS:
            fits, rule = 0 <= value < 1, "must be in [0, 1)"
        else:
            continue
        if not fits:
            raise UsageError(f"{flags}{name} {rule}, received {value}")
