"""Which settings a learning-rate schedule goes by, without importing Keras."""

import math
from typing import Any

from albert_tf.errors import UsageError

SCHEDULES = ("original", "linear", "cosine", "trapezoid")
SCHEDULE_HELP = (
    "original (linear warm-up, then polynomial decay counted from step 0), linear or "
    "cosine (from the peak at the end of the warm-up to 0 at the last step), or "
    "trapezoid (the peak until the last num_decay_steps, then 1 - sqrt)."
)
DECAY_HELP = (
    "With learning_rate_schedule=trapezoid: the last steps, in which the learning rate "
    "falls. Default: 20% of all."
)

# The batch of ALBERT's pretraining, to which its rate of 0.00176 belongs. LAMB's paper
# (arXiv:1904.00962) has for BERT and this batch the same rate and warm-up of 1/40.
REFERENCE_BATCH_SIZE = 4096


def scaled_learning_rate(learning_rate: float, batch_size: int) -> float:
    """Returns the rate for a batch from that for 4096 examples.

    The square-root rule, which is LAMB's (arXiv:1904.00962) and, because an update does
    not depend on the scale of the gradients there either, Adam's (arXiv:2205.10287).
    """
    return learning_rate * math.sqrt(batch_size / REFERENCE_BATCH_SIZE)


def check_schedule(settings: Any, flags: str = "--") -> None:
    """Checks the settings of a schedule against each other.

    Args:
        settings: Dataclass with `learning_rate_schedule`, `num_decay_steps`,
            `num_train_steps` and `num_warmup_steps`; for pretraining also with
            `poly_power` and `start_warmup_step`.
        flags: str. What the names begin with in messages.

    Raises:
        UsageError: If the schedule is unknown, or a setting means nothing to it.
    """
    name = settings.learning_rate_schedule
    if name not in SCHEDULES:
        raise UsageError(
            f"{flags}learning_rate_schedule must be one of {', '.join(SCHEDULES)}, "
            f"received {name!r}"
        )
    only_original = {"poly_power": 1.0, "start_warmup_step": 0}
    for other, default in only_original.items():
        value = getattr(settings, other, default)
        if name != "original" and value != default:
            raise UsageError(
                f"{flags}{other} has no meaning with {flags}learning_rate_schedule="
                f"{name}, received {value}"
            )
    steps = settings.num_decay_steps
    if steps is None:
        return
    if name != "trapezoid":
        raise UsageError(
            f"{flags}num_decay_steps requires {flags}learning_rate_schedule=trapezoid, "
            f"received {steps} with {name}"
        )
    if settings.num_train_steps is None or settings.num_warmup_steps is None:
        if steps < 1:
            raise UsageError(
                f"{flags}num_decay_steps must be positive, received {steps}"
            )
        return  # Checked again once they are known.
    most = settings.num_train_steps - settings.num_warmup_steps
    if not 0 < steps <= most:
        raise UsageError(
            f"{flags}num_decay_steps must be from 1 to {most}, the steps after the "
            f"warm-up, received {steps}"
        )
