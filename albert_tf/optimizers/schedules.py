"""Learning-rate schedules: the original one, linear, cosine and trapezoid."""

import math
from typing import Any

import keras
from keras import ops

from albert_tf.errors import require
from albert_tf.optimizers.arguments import number


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up from 0 to the peak, then a decay that a subclass defines.

    With `s = step + step_offset`, `W` warm-up steps and `N` training steps the rate is

        peak * s / W                        while s < W
        end + (peak - end) * part(s)        afterwards, until s = N
        end                                 from N on

    With W = N there is only the warm-up.

    Args:
        learning_rate: float > 0. The peak.
        num_train_steps: int > 0. N, the step at which `end_learning_rate` is reached.
        num_warmup_steps: int in `[0, N]`. W.
        end_learning_rate: float in `[0, learning_rate]`.
        step_offset: int >= 0. Added to the step. 0, the default, uses rate 0 for the
            first update (step 0). The original's code has a race here: it increments
            the step without ordering it against the update, and on TF 1.15 with
            reference variables update number i always used the rate of step i + 1;
            1 reproduces such a run.

    Call arguments:
        step: int scalar, the number of updates made so far.

    Returns:
        float32 scalar.

    Raises:
        UsageError: If an argument is out of its range.
    """

    arguments: tuple[str, ...] = (
        "learning_rate",
        "num_train_steps",
        "num_warmup_steps",
        "end_learning_rate",
        "step_offset",
    )

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        *,
        end_learning_rate: float = 0.0,
        step_offset: int = 0,
    ):
        super().__init__()
        rate, steps = learning_rate, num_train_steps
        self.learning_rate = number("learning_rate", rate, positive=True)
        self.num_train_steps = number("num_train_steps", steps, int, positive=True)
        self.num_warmup_steps = number("num_warmup_steps", num_warmup_steps, int)
        self.end_learning_rate = number("end_learning_rate", end_learning_rate)
        self.step_offset = number("step_offset", step_offset, int)
        self.num_steps_left = self.num_train_steps - self.num_warmup_steps
        most = f"num_warmup_steps must be at most num_train_steps = {steps}"
        require(self.num_steps_left >= 0, most, num_warmup_steps)
        most = f"end_learning_rate must be at most learning_rate = {rate}"
        require(self.end_learning_rate <= self.learning_rate, most, end_learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {name: getattr(self, name) for name in self.arguments}

    def __call__(self, step):
        """Returns the rate of the update that follows `step` updates."""
        # float32 holds every step up to 2**24 exactly; ALBERT trained for 125,000.
        step = ops.cast(step, "float32") + float(self.step_offset)
        peak, end = self.learning_rate, self.end_learning_rate
        rate = end + (peak - end) * self._part(step)
        rate = ops.where(step < float(self.num_train_steps), rate, end)
        if not self.num_warmup_steps:
            return rate
        since_start, warmup = self._since_start(step), float(self.num_warmup_steps)
        return ops.where(since_start < warmup, peak * (since_start / warmup), rate)

    def _since_start(self, step):
        """Returns the number of steps since the start of the warm-up."""
        return step

    def _part(self, step):
        """Returns the share of `peak - end` at a step from W to N."""
        raise NotImplementedError

    def _remaining(self, step):
        """Returns the remaining share of the steps after the warm-up, in `[0, 1]`."""
        remaining = float(self.num_train_steps) - step
        return ops.clip(remaining / float(max(1, self.num_steps_left)), 0.0, 1.0)


@keras.saving.register_keras_serializable("albert_tf")
class WarmupPolynomialDecay(WarmupSchedule):
    """Linear warm-up followed by polynomial decay, as in `optimization.py`.

        peak * (s - start_warmup_step) / W           while s - start_warmup_step < W
        (peak - end) * (1 - min(s, N) / N) ** power + end                 afterwards

    The decay counts from step 0, not from the end of the warm-up, so the rate jumps
    down by the factor `1 - W/N` when the warm-up ends and `peak` itself is never used.
    This is the original's behaviour and is kept: published learning rates include it.

    Args:
        poly_power: float > 0. 1.0 is linear.
        start_warmup_step: int >= 0. The warm-up begins here.
        allow_negative_rate: bool. Before `start_warmup_step` the original's formula is
            negative, which increases the loss. False, the default, uses 0 there; True
            is faithful.
        others: See `WarmupSchedule`.
    """

    arguments = (
        *WarmupSchedule.arguments,
        "poly_power",
        "start_warmup_step",
        "allow_negative_rate",
    )

    def __init__(
        self,
        *args: Any,
        poly_power: float = 1.0,
        start_warmup_step: int = 0,
        allow_negative_rate: bool = False,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.poly_power = number("poly_power", poly_power, positive=True)
        self.start_warmup_step = number("start_warmup_step", start_warmup_step, int)
        self.allow_negative_rate = bool(allow_negative_rate)

    def _since_start(self, step):
        since_start = step - float(self.start_warmup_step)
        if self.allow_negative_rate:
            return since_start
        return ops.maximum(since_start, 0.0)

    def _part(self, step):
        total = float(self.num_train_steps)
        remaining = 1.0 - ops.minimum(step, total) / total
        return (
            remaining if self.poly_power == 1 else ops.power(remaining, self.poly_power)
        )


@keras.saving.register_keras_serializable("albert_tf")
class WarmupLinearDecay(WarmupSchedule):
    """Warm-up, then a straight line from the peak to the end.

    `part(s) = (N - s) / (N - W)`, as transformers' `get_linear_schedule_with_warmup`.
    See `WarmupSchedule` for the arguments. The decay begins at the peak, which is the
    rate of step W, here and in the following classes.
    """

    def _part(self, step):
        return self._remaining(step)


@keras.saving.register_keras_serializable("albert_tf")
class WarmupCosineDecay(WarmupSchedule):
    """Warm-up, then half a cosine from the peak to the end.

    `part(s) = (1 + cos(pi * (s - W) / (N - W))) / 2` (SGDR, arXiv:1608.03983, without
    restarts). See `WarmupSchedule` for the arguments.
    """

    def _part(self, step):
        # By the half-angle formula, which avoids cancellation close to 0.
        return ops.square(ops.sin(math.pi / 2 * self._remaining(step)))


# By default, a trapezoid decays in the last fifth of the run.
_DECAY_PARTS = 5


@keras.saving.register_keras_serializable("albert_tf")
class WarmupTrapezoid(WarmupSchedule):
    """Warm-up, the peak for most of the run, then a decay over its last D steps.

    `part(s) = 1` until step `N - D`, then `1 - sqrt((s - (N - D)) / D)`: the cooldown
    of arXiv:2405.18392, which reaches a cosine's loss for any length of the run.

    Args:
        num_decay_steps: int in `[0, N - W]` or None. D; None for a fifth of N, or less
            if the warm-up leaves less.
        others: See `WarmupSchedule`.
    """

    arguments = (*WarmupSchedule.arguments, "num_decay_steps")

    def __init__(self, *args: Any, num_decay_steps: int | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        most, steps = self.num_steps_left, num_decay_steps
        if steps is None:
            steps = min(self.num_train_steps // _DECAY_PARTS, most)
        self.num_decay_steps = number("num_decay_steps", steps, int)
        need = "num_decay_steps must be at most num_train_steps - num_warmup_steps"
        require(self.num_decay_steps <= most, f"{need} = {most}", steps)

    def _part(self, step):
        if not self.num_decay_steps:
            return ops.ones_like(step)
        steps = float(self.num_decay_steps)
        begin = float(self.num_train_steps - self.num_decay_steps)
        return 1.0 - ops.sqrt(ops.clip((step - begin) / steps, 0.0, 1.0))


# Keyed by the name that `create_optimizer` takes.
DECAYS = {
    "original": WarmupPolynomialDecay,
    "linear": WarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "trapezoid": WarmupTrapezoid,
}
