"""Learning-rate schedules: the original one, linear, cosine and trapezoid."""

import math
from typing import Any

import keras
from keras import ops

from albert_tf.errors import require
from albert_tf.optimizers.arguments import finite, whole


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
        require(self.learning_rate > 0, "learning_rate must be > 0", learning_rate)
        require(
            self.num_train_steps > 0, "num_train_steps must be > 0", num_train_steps
        )
        require(
            self.num_warmup_steps <= self.num_train_steps,
            f"num_warmup_steps must be at most num_train_steps = {num_train_steps}",
            num_warmup_steps,
        )
        require(
            0 <= self.end_learning_rate <= self.learning_rate,
            f"end_learning_rate must be between 0 and learning_rate = {learning_rate}",
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
        require(self.poly_power > 0, "poly_power must be > 0", poly_power)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "poly_power": self.poly_power,
            "start_warmup_step": self.start_warmup_step,
            "allow_negative_rate": self.allow_negative_rate,
        }

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


# By default, a trapezoid decays in the last fifth of the run.
_DECAY_PARTS = 5


class _WarmupDecay(WarmupSchedule):
    """Linear warm-up from 0 to the peak, then what a subclass makes of the rest.

    With `s = step + step_offset`, `W` warm-up steps and `N` training steps the rate is

        peak * s / W                        while s < W
        end + (peak - end) * part(s)        afterwards, until s = N
        end                                 from N on

    Differs from `WarmupPolynomialDecay`: the decay begins at the peak, which is the
    rate of step W, so the rate does not jump when the warm-up ends. With W = N it is
    all warm-up.

    Args:
        others: See `WarmupSchedule`.

    Call arguments:
        step: int scalar, the number of updates made so far.

    Returns:
        float32 scalar.
    """

    def __call__(self, step):
        """Returns the rate of the update that follows `step` updates."""
        # float32 holds every step up to 2**24 exactly.
        step = ops.cast(step, "float32") + float(self.step_offset)
        warmup, total = float(self.num_warmup_steps), float(self.num_train_steps)
        end = self.end_learning_rate
        rate = end + (self.learning_rate - end) * self._part(step)
        rate = ops.where(step < total, rate, end)
        if not self.num_warmup_steps:
            return rate
        rising = self.learning_rate * (step / warmup)
        return ops.where(step < warmup, rising, rate)

    def _part(self, step):
        """Returns the share of `peak - end` at a step from W to N."""
        raise NotImplementedError

    def _remaining(self, step, num_steps: int):
        """Returns what remains of the last `num_steps` steps, in `[0, 1]`."""
        remaining = (float(self.num_train_steps) - step) / float(max(1, num_steps))
        return ops.clip(remaining, 0.0, 1.0)


@keras.saving.register_keras_serializable("albert_tf")
class WarmupLinearDecay(_WarmupDecay):
    """Warm-up, then a straight line from the peak to the end.

    `part(s) = (N - s) / (N - W)`, as transformers' `get_linear_schedule_with_warmup`.
    See `WarmupSchedule` for the arguments.
    """

    def _part(self, step):
        return self._remaining(step, self.num_train_steps - self.num_warmup_steps)


@keras.saving.register_keras_serializable("albert_tf")
class WarmupCosineDecay(_WarmupDecay):
    """Warm-up, then half a cosine from the peak to the end.

    `part(s) = (1 + cos(pi * (s - W) / (N - W))) / 2` (SGDR, arXiv:1608.03983, without
    restarts). See `WarmupSchedule` for the arguments.
    """

    def _part(self, step):
        decay_steps = self.num_train_steps - self.num_warmup_steps
        # The same by the half-angle formula, which keeps its digits close to 0.
        return ops.square(ops.sin(math.pi / 2 * self._remaining(step, decay_steps)))


@keras.saving.register_keras_serializable("albert_tf")
class WarmupTrapezoid(_WarmupDecay):
    """Warm-up, the peak for most of the run, then a decay over its last D steps.

    `part(s) = 1` until step `N - D`, then `1 - sqrt((s - (N - D)) / D)`: the cooldown
    of arXiv:2405.18392, which reaches a cosine's loss for any length of the run.

    Args:
        num_decay_steps: int in `[0, N - W]` or None. D; None for a fifth of N, or what
            the warm-up leaves of it.
        others: See `WarmupSchedule`.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
        step_offset: int = 0,
        num_decay_steps: int | None = None,
    ):
        super().__init__(
            learning_rate,
            num_train_steps,
            num_warmup_steps,
            end_learning_rate,
            step_offset,
        )
        most = self.num_train_steps - self.num_warmup_steps
        if num_decay_steps is None:
            num_decay_steps = min(self.num_train_steps // _DECAY_PARTS, most)
        self.num_decay_steps = whole("num_decay_steps", num_decay_steps)
        require(
            self.num_decay_steps <= most,
            "num_decay_steps must be at most num_train_steps - num_warmup_steps = "
            f"{most}",
            num_decay_steps,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_decay_steps": self.num_decay_steps}

    def _part(self, step):
        if not self.num_decay_steps:
            return ops.ones_like(step)
        steps = float(self.num_decay_steps)
        begin = float(self.num_train_steps - self.num_decay_steps)
        return 1.0 - ops.sqrt(ops.clip((step - begin) / steps, 0.0, 1.0))


# By the name that `create_optimizer` takes.
DECAYS = {
    "original": WarmupPolynomialDecay,
    "linear": WarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "trapezoid": WarmupTrapezoid,
}
