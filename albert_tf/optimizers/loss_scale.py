"""Keeps the gradients of a step in float16 within the range of the type.

float16 ends at 65,504, and numbers below 6e-8 become 0. So the loss is multiplied by a
scale before it is differentiated, and the gradients, by then float32, are divided by
it. The scale is as large as possible: it grows until a gradient overflows. Such a step
changes no weight (arXiv:1710.03740, section 3.2).
"""

from typing import Any

import keras
from keras import ops

# As in Keras's `LossScaleOptimizer`, which has no bounds. A scale below 1 would mean
# that even unscaled gradients overflow; the upper bound is Apex's.
INITIAL, MINIMUM, MAXIMUM = 2.0**15, 1.0, 2.0**24
GROWTH_STEPS = 2000


class LossScale:
    """A loss scale that adapts itself, as variables of an optimizer.

    It must be created before the optimizer is built. It is halved after a step whose
    gradients are not finite, and doubled after 2,000 consecutive other steps. All
    factors are powers of 2, so scaling changes no digit of a number within the range.

    Attributes:
        value: float32 scalar, from 1 to 2**24. The scale of the next step.
        finite_steps: int32 scalar. Steps since the last change of the scale.
        skipped_steps: int32 scalar. Steps that have changed no weight.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        def variable(name: str, dtype: str, initial: float) -> keras.Variable:
            return optimizer.add_variable(
                shape=(),
                initializer=keras.initializers.Constant(initial),
                dtype=dtype,
                aggregation="only_first_replica",
                name=name,
            )

        self.value = variable("loss_scale", "float32", INITIAL)
        self.finite_steps = variable("finite_steps", "int32", 0)
        self.skipped_steps = variable("skipped_steps", "int32", 0)

    @property
    def state(self) -> dict[str, keras.Variable]:
        """The variables of a checkpoint, by name."""
        names = ("value", "finite_steps", "skipped_steps")
        return {name: getattr(self, name) for name in names}

    def unscale(self, gradients: list) -> list:
        """Returns the float32 gradients of the loss from the scaled ones."""
        return [g / ops.cast(self.value.value, g.dtype) for g in gradients]

    def update(self, finite: Any) -> None:
        """Adapts the scale; `finite`, a bool scalar, must be equal on all devices."""
        value, count = self.value.value, self.finite_steps.value + 1
        larger, smaller = value * 2, value / 2
        grows = ops.logical_and(finite, ops.equal(count, GROWTH_STEPS))
        changes = ops.logical_or(ops.logical_not(finite), grows)
        value = ops.where(grows, larger, ops.where(finite, value, smaller))
        self.value.assign(ops.clip(value, MINIMUM, MAXIMUM))
        self.finite_steps.assign(ops.where(changes, ops.zeros_like(count), count))
        self.skipped_steps.assign_add(1 - ops.cast(finite, "int32"))

    def describe(self) -> dict[str, float | int]:
        """Returns the next step's scale and the number of skipped steps so far."""
        value, skipped = map(ops.convert_to_numpy, (self.value, self.skipped_steps))
        return {"loss_scale": float(value), "skipped_steps": int(skipped)}
