"""AdamW, and the parts it shares with LAMB: the order of a step and Adam's moments.

A step is: dense gradients -> sum over replicas -> clip by global norm -> update. Keras
3.15 does each of the first three differently, and each difference changes the trained
weights:

* It squares the rows of a sparse embedding gradient before adding up the rows with the
same id (sum of squares instead of square of the sum): with two segment ids and 4096
tokens Adam's first step is 45 times too large. Here gradients become dense first. * It
clips every replica's share of the gradient before the sum over replicas, so the result
depends on the number of replicas. Here the sum comes first. * The norm of a sparse
gradient counts rows with the same id separately.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.errors import UsageError, require
from albert_tf.optimizers.arguments import number
from albert_tf.optimizers.loss_scale import LossScale

# The original's and our names of variables that get neither decay nor LAMB's trust
# ratio: gamma and beta of every layer normalization, and all biases.
DEFAULT_EXCLUSIONS = ("LayerNorm", "layer_norm", "bias")
# Keras's private methods that are overridden here and in `lamb`, with the methods that
# must call them.
_CALLERS = {
    "_backend_apply_gradients": "apply",
    "_all_reduce_sum_gradients": "_backend_update_step",
}


class AdamStyleOptimizer(keras.optimizers.Optimizer):
    """Adam's moments, decay by name, dense reduced clipped gradients.

    Subclasses implement `_scaled_update`.

    Under a `tf.distribute` strategy `apply` sums the gradients of all replicas, so each
    replica's loss must already be divided by the global count (`fit` does so). A
    training step that sums them itself sets `sum_over_replicas = False` once. It must
    do so with Keras's `LossScaleOptimizer`, in which `compile` wraps an optimizer in
    mixed_float16: it checks only the first replica for overflow, before the sum, and an
    overflow in another one becomes NaN in all weights. `scale_losses` checks all
    replicas.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        weight_decay_rate: float >= 0. Decoupled: added to the update, not the gradient.
        beta_1: float in `[0, 1)`. Decay of the first moment.
        beta_2: float in `[0, 1)`. Decay of the second moment.
        epsilon: float > 0. Added outside the root.
        clip_norm: float > 0, or None (or 0) for no clipping by global norm.
        exclude_from_weight_decay: regular expressions, searched in the variable's path
            without the model's name.
        learning_rate_multipliers: dict or None. Factors of the variables' learning
            rates by regular expression, searched in the same path. The first match
            decides; without one, the rate is unchanged.
        ema_decay: float in `[0, 1)`. Decay of an exponential moving average of the
            weights, the slot `average`; 0 for none. Its start is corrected like Adam's
            moments: after t updates it is the mean of the weights after each of them,
            update i with weight `ema_decay ** (t - i)`. The initial weights do not
            enter it.
        name: str or None.
        loss_scale_factor: float or None. A constant loss scale, as in Keras.
        bias_correction: bool. Whether the update is multiplied by
            `sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t)` in update t, as in fairseq,
            which adds epsilon to the root of the uncorrected moment.

    Attributes:
        sum_over_replicas: bool. False if `apply` is given gradients that are already
            summed over all replicas. Initially true; not part of the config.
        last_global_norm: float32 scalar. Norm of the last step's gradients, before
            clipping; 0 before the first step, and always when `clip_norm` is None and
            there is no `loss_scale`.
        loss_scale: `LossScale`, or None without `scale_losses`.

    Raises:
        UsageError: If an argument is out of its range.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        exclude_from_weight_decay: Sequence[str] = DEFAULT_EXCLUSIONS,
        learning_rate_multipliers: Mapping[str, float] | None = None,
        ema_decay: float = 0.0,
        name: str | None = None,
        loss_scale_factor: float | None = None,
        bias_correction: bool = False,
    ):
        if isinstance(learning_rate, int):
            learning_rate = float(learning_rate)
        _check_keras()
        super().__init__(
            learning_rate=learning_rate, name=name, loss_scale_factor=loss_scale_factor
        )
        self.weight_decay_rate = number("weight_decay_rate", weight_decay_rate)
        self.beta_1 = number("beta_1", beta_1, below=1)
        self.beta_2 = number("beta_2", beta_2, below=1)
        self.epsilon = number("epsilon", epsilon, positive=True)
        self.clip_norm = number("clip_norm", clip_norm or 0) or None
        self._decay_exclusions = checked_patterns(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )
        self._decay_flags = frozenset()
        multipliers = dict(learning_rate_multipliers or {})
        checked_patterns("learning_rate_multipliers", tuple(multipliers))
        self._rate_patterns = tuple(
            (pattern, number("learning_rate_multipliers", value))
            for pattern, value in multipliers.items()
        )
        self._rates: tuple[float, ...] = ()
        self.ema_decay = number("ema_decay", ema_decay, below=1)
        self.bias_correction = bool(bias_correction)
        self.sum_over_replicas = True
        self.loss_scale: LossScale | None = None
        self.last_global_norm = self.add_variable(
            shape=(),
            dtype="float32",
            aggregation="only_first_replica",
            name="last_global_norm",
        )

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the slots `m` and `v`, and `average` if there is an `ema_decay`."""
        if self.built:
            return
        super().build(variables)
        self._m, self._v = self.add_optimizer_variables(variables, ["m", "v"])
        if self.ema_decay:
            # A variable that no gradient reaches is its own average. The value is
            # copied, because in PyTorch both would share their memory.
            value_of = lambda v: lambda shape, dtype: ops.copy(v)  # noqa: E731
            self._averages = [
                self.add_variable_from_reference(v, "average", value_of(v))
                for v in variables
            ]
        self._decay_flags = self._included(variables, self._decay_exclusions)
        self._rates = tuple(map(self._multiplier_of, variables))

    def scale_losses(self) -> None:
        """Creates a `loss_scale`, for a training step in float16, before `build`.

        From then on, `apply` takes the gradients of the loss times `loss_scale.value`.
        If their norm is not finite, weights, moments and averages stay bit-identical,
        and so do trust ratios. `iterations` advances in any case: a run reads batch
        number `iterations`, and would otherwise read the same batch for ever.
        """
        self.loss_scale = LossScale(self)

    def scale_loss(self, loss):
        """Returns the loss times its scale, if there is one; `fit` calls it."""
        if self.loss_scale:
            return loss * ops.cast(self.loss_scale.value.value, loss.dtype)
        return super().scale_loss(loss)

    def slot(self, variable: keras.Variable, name: str) -> keras.Variable:
        """Returns the slot `m` or `v`, or `average` if there is an `ema_decay`."""
        slots = {"m": self._m, "v": self._v} if self.built else {}
        if self.built and self.ema_decay:
            slots["average"] = self._averages
        names = ", ".join(slots) or "none before build"
        require(name in slots, f"slot must be one of {names}", name)
        return slots[name][self._get_variable_index(variable)]

    def has_updated(self, variable: keras.Variable) -> bool:
        """Returns whether a variable has ever had a gradient other than zeros."""
        values = [self.slot(variable, name).value for name in ("m", "v")]
        # If a slot is divided among processes, this process's parts decide.
        parts = [getattr(v, "addressable_shards", None) for v in values]
        values = [p.data for part in parts for p in part] if all(parts) else values
        return any(ops.convert_to_numpy(v).any() for v in values)

    def uses_weight_decay(self, variable: keras.Variable) -> bool:
        """Returns whether the built optimizer decays this variable."""
        return self._get_variable_index(variable) in self._decay_flags

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Raises an error: the names are an argument of the constructor."""
        raise UsageError(
            "exclude_from_weight_decay must be given to the constructor as regular "
            f"expressions, received var_list={var_list!r}, var_names={var_names!r}"
        )

    def apply(self, grads, trainable_variables=None) -> None:
        """Updates the variables; see `sum_over_replicas` on several replicas."""
        grads = list(grads)
        if trainable_variables is None:
            variables = self._trainable_variables
        else:
            variables = trainable_variables = list(trainable_variables)
        if len(grads) == len(variables):  # Keras reports a mismatch.
            grads = [_dense(g, v) for g, v in zip(grads, variables, strict=True)]
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates one variable and its slots; the rate is from `_step_scalars`."""
        index = self._get_variable_index(variable)
        scalars = {k: ops.cast(v, variable.dtype) for k, v in learning_rate.items()}
        if self._rates[index] != 1:
            scalars["rate"] = scalars["rate"] * self._rates[index]
        if gradient is not None:
            gradient = ops.cast(gradient, variable.dtype)
            if self.loss_scale:
                gradient = ops.where(learning_rate["taken"], gradient, 0.0)
            self._update(gradient, variable, index, scalars)
        if self.ema_decay:  # of the variable that was just updated, or left out
            average = self._averages[index]
            change = scalars["average_share"] * (variable - average)
            self.assign(average, average + change)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        base = super().get_config()
        names = ("name", "learning_rate", "loss_scale_factor")
        own = ("weight_decay_rate", "beta_1", "beta_2", "epsilon", "clip_norm")
        own += ("ema_decay", "bias_correction")
        return {
            **{name: base[name] for name in names},
            **{name: getattr(self, name) for name in own},
            "exclude_from_weight_decay": list(self._decay_exclusions),
            "learning_rate_multipliers": dict(self._rate_patterns),
        }

    def _step_scalars(self) -> dict[str, Any]:
        """Returns the scalars of a step that all variables share."""
        # Keras passes them to `update_step` in place of the learning rate. Computed for
        # every variable, they were a tenth of a step's operations.
        scalars = {"rate": ops.convert_to_tensor(self.learning_rate)}
        updates = ops.cast(self.iterations, "float32") + 1.0  # including this one
        if self.loss_scale:
            skipped = ops.cast(self.loss_scale.skipped_steps.value, "float32")
            updates = updates - skipped
        # 1 - decay ** updates, without cancellation
        start = lambda decay, t: -ops.expm1(t * math.log(decay))  # noqa: E731
        if self.bias_correction:
            t = ops.maximum(updates, 1.0)
            first, second = (
                start(beta, t) if beta else ops.ones(())
                for beta in (self.beta_1, self.beta_2)
            )
            scalars["rate_correction"] = ops.sqrt(second) / first
        if self.ema_decay:
            # The first update replaces the whole average.
            share = (1.0 - self.ema_decay) / start(self.ema_decay, updates)
            scalars["average_share"] = ops.minimum(share, 1.0)
        if not self.loss_scale:
            return scalars
        # A skipped step writes the old values back, which needs no condition to wait
        # for, and is allowed under every strategy.
        taken = ops.isfinite(self.last_global_norm.value)
        for name in scalars:
            scalars[name] = ops.where(taken, scalars[name], 0.0)
        for name in ("beta_1", "beta_2"):
            scalars[name] = ops.where(taken, getattr(self, name), 1.0)
        return {**scalars, "taken": taken}

    def _update(self, gradient, variable, index: int, scalars) -> None:
        """Updates one variable and its moments."""
        m, v = self._m[index], self._v[index]
        beta_1 = scalars.get("beta_1", self.beta_1)
        beta_2 = scalars.get("beta_2", self.beta_2)
        next_m = beta_1 * m + (1.0 - self.beta_1) * gradient
        next_v = beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient)
        update = next_m / (ops.sqrt(next_v) + self.epsilon)
        if self.bias_correction:
            update = update * scalars["rate_correction"]
        if self.weight_decay_rate and index in self._decay_flags:
            update = update + self.weight_decay_rate * variable
        update = self._scaled_update(update, variable)
        self.assign(m, next_m)
        self.assign(v, next_v)
        self.assign_sub(variable, scalars["rate"] * update)

    def _scaled_update(self, update, variable):
        """Returns the update before it is multiplied by the learning rate."""
        return update

    def _multiplier_of(self, variable) -> float:
        path = canonical_path(variable)
        matches = (rate for p, rate in self._rate_patterns if re.search(p, path))
        return next(matches, 1.0)

    def _included(self, variables, patterns) -> frozenset[int]:
        """Returns the indices of the variables whose name matches no pattern."""
        # A frozenset, because Keras wraps lists and dicts to track their elements.
        return frozenset(
            index
            for index, variable in enumerate(variables)
            if not any(re.search(p, canonical_path(variable)) for p in patterns)
        )

    def _backend_apply_gradients(self, grads, trainable_variables) -> None:
        # Keras clips here and sums in `_backend_update_step`; the order matters.
        pairs = list(zip(grads, trainable_variables, strict=True))
        if self.sum_over_replicas and keras.backend.backend() == "tensorflow":
            pairs = super()._all_reduce_sum_gradients(pairs)
        grads = [gradient for gradient, _ in pairs]
        if self.loss_scale:
            grads = self.loss_scale.unscale(grads)
        if self.clip_norm or self.loss_scale:
            grads = self._clip_by_global_norm(grads)
        if self.loss_scale:
            self.loss_scale.update(ops.isfinite(self.last_global_norm.value))
        if self.ema_decay:
            # An average counts every update, also one that leaves its weight out, such
            # as a weight of a layer that a step does not compute.
            read = {self._get_variable_index(v) for v in trainable_variables}
            every = enumerate(self._trainable_variables)
            others = [v for i, v in every if i not in read]
            grads = [*grads, *[None] * len(others)]
            trainable_variables = [*trainable_variables, *others]
        self._backend_update_step(grads, trainable_variables, self._step_scalars())

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # Keras calls this after the clipping, when the gradients are already summed.
        return list(grads_and_vars)

    def _clip_by_global_norm(self, grads):
        squares = [ops.sum(ops.square(ops.cast(g, "float32"))) for g in grads]
        norm = ops.sqrt(ops.sum(ops.stack(squares)))
        self.last_global_norm.assign(norm)
        if not self.clip_norm:
            return grads
        scale = self.clip_norm * ops.minimum(1.0 / norm, 1.0 / self.clip_norm)
        # Like tf.clip_by_global_norm: one infinity makes every gradient NaN rather
        # than silently zero.
        scale = scale + (norm - norm)
        return [g * ops.cast(scale, g.dtype) for g in grads]


def _check_keras() -> None:
    """Checks that Keras still calls the methods that are overridden here."""
    # Otherwise gradients would silently be summed and clipped as Keras does it.
    for name, caller in _CALLERS.items():
        if caller != "apply" and keras.backend.backend() != "tensorflow":
            continue  # only TensorFlow sums over replicas
        method = getattr(keras.optimizers.Optimizer, caller, None)
        if name not in getattr(getattr(method, "__code__", None), "co_names", ()):
            raise RuntimeError(
                f"Keras {keras.__version__}: Optimizer.{caller} does not call {name}, "
                "which albert_tf overrides; install the version in requirements.txt"
            )


def canonical_path(variable: keras.Variable) -> str:
    """Returns the variable's path without the model's own name.

    Otherwise a model called "bias_study" would turn off weight decay. Keras starts a
    path with the model's name, but with `backbone/` for the weights of a backbone that
    was built first, and with the layer's name (`layer/weight`) in functional models.
    """
    path = getattr(variable, "path", None) or variable.name
    outermost, _, rest = path.partition("/")
    return rest if "/" in rest and outermost != "backbone" else path


def _dense(gradient, variable):
    """Adds up the rows of a sparse gradient (`tf.IndexedSlices`, by its attributes)."""
    if not (hasattr(gradient, "values") and hasattr(gradient, "dense_shape")):
        return gradient
    return ops.segment_sum(gradient.values, gradient.indices, variable.shape[0])


def checked_patterns(name: str, patterns: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the regular expressions as a tuple; `name` is the argument's."""
    if isinstance(patterns, str):
        patterns = (patterns,)
    for pattern in patterns or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"{name} must hold regular expressions, received {pattern!r}: {error}"
            ) from None
    # An empty one, as in the flag for no names, would be found in every name.
    return tuple(filter(None, patterns or ()))


@keras.saving.register_keras_serializable("albert_tf")
class AdamW(AdamStyleOptimizer):
    """Adam with decoupled weight decay, by default without bias correction.

    The original's `AdamWeightDecayOptimizer`: `w -= rate * (m / (sqrt(v) + epsilon) +
    decay * w)`. Used for fine-tuning. See `AdamStyleOptimizer` for the arguments.

    Differs from `keras.optimizers.AdamW`: no bias correction, epsilon 1e-6, names
    excluded from decay by default, and the order of a step (see the module).
    """

    def _update(self, gradient, variable, index: int, scalars) -> None:
        has_kernel = keras.backend.backend() == "tensorflow" and not self.loss_scale
        if not has_kernel or variable.dtype != "float32":
            super()._update(gradient, variable, index, scalars)
            return
        from albert_tf.kernels.adam import apply_adam

        rate, m, v = scalars["rate"], self._m[index], self._v[index]
        if self.weight_decay_rate and index in self._decay_flags:
            self.assign_sub(variable, rate * self.weight_decay_rate * variable)
        if self.bias_correction:
            rate = rate * scalars["rate_correction"]
        apply_adam(
            variable, m, v, gradient, rate, self.beta_1, self.beta_2, self.epsilon
        )
