"""Creates an optimizer with its learning-rate schedule."""

from typing import Any

from albert_tf.errors import require
from albert_tf.optimizers.adamw import AdamStyleOptimizer, AdamW
from albert_tf.optimizers.arguments import check_schedule_arguments
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.schedules import DECAYS

_OPTIMIZERS = {"adamw": AdamW, "lamb": Lamb}


def create_optimizer(
    name: str,
    *,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
    end_learning_rate: float = 0.0,
    step_offset: int = 0,
    poly_power: float = 1.0,
    start_warmup_step: int = 0,
    allow_negative_rate: bool = False,
    learning_rate_schedule: str = "original",
    num_decay_steps: int | None = None,
    **optimizer_arguments: Any,
) -> AdamStyleOptimizer:
    """Returns LAMB or AdamW with the original's learning-rate schedule.

    The defaults are the original's `optimization.create_optimizer`; ALBERT was
    pretrained with `"lamb"`, rate 0.00176, 125,000 steps, 3,125 of warm-up and batch
    4096, and fine-tuned with `"adamw"`.

    Args:
        name: str. `"lamb"` or `"adamw"`.
        learning_rate: float > 0. The peak of the schedule.
        num_train_steps: int > 0. The rate has decayed at this step.
        num_warmup_steps: int >= 0. Steps of linear warm-up.
        end_learning_rate: float >= 0. The rate after `num_train_steps`.
        step_offset: int >= 0. Update i uses the rate of step i + step_offset.
        poly_power: float > 0. Power of the decay; 1.0 is linear.
        start_warmup_step: int >= 0. The warm-up begins here.
        allow_negative_rate: bool. See `WarmupPolynomialDecay`.
        learning_rate_schedule: str. `"original"` (`WarmupPolynomialDecay`), or
            `"linear"`, `"cosine"` or `"trapezoid"` (module `schedules`), for which
            `poly_power`, `start_warmup_step` and `allow_negative_rate` have no meaning.
        num_decay_steps: int or None. With `"trapezoid"`, see `WarmupTrapezoid`.
        **optimizer_arguments: `weight_decay_rate`, `clip_norm`, `beta_1`, `beta_2`,
            `epsilon`, `bias_correction`, `loss_scale_factor`, `ema_decay`,
            `exclude_from_weight_decay`, `learning_rate_multipliers`
            (`AdamStyleOptimizer`), and for `"lamb"` `exclude_from_layer_adaptation`
            (`Lamb`).

    Raises:
        UsageError: If the name is unknown or an argument is out of its range.

    Example:
        >>> import albert_tf
        >>> optimizer = albert_tf.create_optimizer(
        ...     "adamw", learning_rate=2e-5, num_train_steps=1000, num_warmup_steps=100
        ... )
        >>> type(optimizer).__name__, float(optimizer.learning_rate)  # of step 0
        ('AdamW', 0.0)
    """
    names = ", ".join(_OPTIMIZERS)
    require(name in _OPTIMIZERS, f"optimizer must be one of {names}", name)
    only_original = {
        "poly_power": poly_power,
        "start_warmup_step": start_warmup_step,
        "allow_negative_rate": allow_negative_rate,
    }
    check_schedule_arguments(learning_rate_schedule, only_original, num_decay_steps)
    own = {"original": only_original, "trapezoid": {"num_decay_steps": num_decay_steps}}
    schedule = DECAYS[learning_rate_schedule](
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        end_learning_rate=end_learning_rate,
        step_offset=step_offset,
        **own.get(learning_rate_schedule, {}),
    )
    return _OPTIMIZERS[name](learning_rate=schedule, **optimizer_arguments)
