"""Which settings a learning-rate schedule goes by, without importing Keras."""

import math
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.optimizers.arguments import ONLY_ORIGINAL, check_schedule_arguments

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
    own = {k: getattr(settings, k) for k in ONLY_ORIGINAL if hasattr(settings, k)}
    steps = settings.num_decay_steps
    name = settings.learning_rate_schedule
    check_schedule_arguments(name, own, steps, flags)
    if steps is None:
        return
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
