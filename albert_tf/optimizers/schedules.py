"""Implements the original's learning rate: linear warm-up, then polynomial decay."""

from typing import Any

import keras
from keras import ops

from albert_tf.optimizers.arguments import finite, require, whole


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """What all schedules with a linear warm-up have in common: checked arguments.

    Args:
        learning_rate: float > 0. The peak.
        num_train_steps: int > 0. N, the step at which `end_learning_rate` is reached.
        num_warmup_steps: int in `[0, N]`. W.
        end_learning_rate: float in `[0, learning_rate]`.
        step_offset: int >= 0. Added to the step.

    Raises:
        UsageError: If an argument is out of its range.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
        step_offset: int = 0,
    ):
        super().__init__()
        self.learning_rate = finite("learning_rate", learning_rate)
        self.num_train_steps = whole("num_train_steps", num_train_steps)
        self.num_warmup_steps = whole("num_warmup_steps", num_warmup_steps)
        self.end_learning_rate = finite("end_learning_rate", end_learning_rate)
        self.step_offset = whole("step_offset", step_offset)
        require(self.learning_rate > 0, "learning_rate", "> 0", learning_rate)
        require(self.num_train_steps > 0, "num_train_steps", "> 0", num_train_steps)
        require(
            self.num_warmup_steps <= self.num_train_steps,
            "num_warmup_steps",
            f"at most num_train_steps = {num_train_steps}",
            num_warmup_steps,
        )
        require(
            0 <= self.end_learning_rate <= self.learning_rate,
            "end_learning_rate",
            f"between 0 and learning_rate = {learning_rate}",
            end_learning_rate,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "end_learning_rate": self.end_learning_rate,
            "step_offset": self.step_offset,
        }


@keras.saving.register_keras_serializable("albert_tf")
class WarmupPolynomialDecay(WarmupSchedule):
    """Linear warm-up followed by polynomial decay, as in `optimization.py`.

    With `s = step + step_offset`, `W` warm-up steps and `N` training steps the rate is

        peak * (s - start_warmup_step) / W           while s - start_warmup_step < W
        (peak - end) * (1 - min(s, N) / N) ** power + end                 afterwards

    The decay counts from step 0, not from the end of the warm-up, so the rate jumps
    down by the factor `1 - W/N` when the warm-up ends and `peak` itself is never used.
    This is the original's behaviour and is kept: published learning rates include it.

    Args:
        learning_rate: float > 0. The peak.
        num_train_steps: int > 0. N, the step at which `end_learning_rate` is reached.
        num_warmup_steps: int in `[0, N]`. W.
        poly_power: float > 0. 1.0 is linear.
        end_learning_rate: float in `[0, learning_rate]`.
        start_warmup_step: int >= 0. The warm-up begins here.
        step_offset: int >= 0. Added to the step. 0, the default, uses rate 0 for the
            first update (step 0). The original's code has a race here: it increments
            the step without ordering it against the update, and on TF 1.15 with
            reference variables update number i always used the rate of step i + 1;
            1 reproduces such a run.
        allow_negative_rate: bool. Before `start_warmup_step` the original's formula is
            negative, which climbs the loss. False, the default, uses 0 there; True
            is faithful.

    Call arguments:
        step: int scalar, the number of updates made so far.

    Returns:
        float32 scalar.

    Raises:
        UsageError: If an argument is out of its range.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        poly_power: float = 1.0,
        end_learning_rate: float = 0.0,
        start_warmup_step: int = 0,
        step_offset: int = 0,
        allow_negative_rate: bool = False,
    ):
        super().__init__(
            learning_rate,
            num_train_steps,
            num_warmup_steps,
            end_learning_rate,
            step_offset,
        )
        self.poly_power = finite("poly_power", poly_power)
        self.start_warmup_step = whole("start_warmup_step", start_warmup_step)
        self.allow_negative_rate = bool(allow_negative_rate)
        require(self.poly_power > 0, "poly_power", "> 0", poly_power)

    def __call__(self, step):
        """Returns the rate of the update that follows `step` updates."""
        # float32 holds every step up to 2**24 exactly; ALBERT trained for 125,000.
        step = ops.cast(step, "float32") + float(self.step_offset)
        total = float(self.num_train_steps)
        remaining = 1.0 - ops.minimum(step, total) / total
        if self.poly_power != 1.0:
            remaining = ops.power(remaining, self.poly_power)
        end = self.end_learning_rate
        rate = (self.learning_rate - end) * remaining + end
        if not self.num_warmup_steps:
            return rate
        since_start = step - float(self.start_warmup_step)
        warmup = self.learning_rate * (since_start / float(self.num_warmup_steps))
        if self.start_warmup_step and not self.allow_negative_rate:
            warmup = ops.maximum(warmup, 0.0)
        return ops.where(since_start < float(self.num_warmup_steps), warmup, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "poly_power": self.poly_power,
            "start_warmup_step": self.start_warmup_step,
            "allow_negative_rate": self.allow_negative_rate,
        }
