"""Implements LAMB as used to pretrain ALBERT."""

import types
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.optimizers.adamw import AdamStyleOptimizer, checked_patterns

# Biases and matrices of single layers that start as 0. Their norm would hold the trust
# ratio close to 0 for thousands of steps, while every update only multiplies it by
# 1 + rate.
_STARTS_AT_ZERO = r"(^|/)depth_\d+/\w+_b$|bias$|/beta$"


@keras.saving.register_keras_serializable("albert_tf")
class Lamb(AdamStyleOptimizer):
    """Layer-wise adaptive moments for large batches (LAMB, arXiv:1904.00962).

    The original's `LAMBOptimizer`: AdamW's update `u`, decay included, times the trust
    ratio `||w|| / ||u||` of its variable (1 if either norm is 0). No bias correction.
    The ratio is per variable: fusing two variables into one changes training.

    Args:
        exclude_from_layer_adaptation: sequence of str or None. Regular expressions of
            the names without trust ratio; default: `exclude_from_weight_decay`, and
            what starts as 0: biases, also of layer norms, and the matrices `B` of
            `AlbertConfig.depth_rank`.
        **kwargs: See `AdamStyleOptimizer`.

    Attributes:
        last_trust_ratios: float32 vector. The last step's ratios, one per
            `adapted_variables`, once built; 0 before the first step, and for a variable
            that was not updated in it.

    Differs from `keras.optimizers.Lamb`: no bias correction, epsilon 1e-6, decay before
    the ratio, exclusions, and the order of a step (see `adamw.py`).
    """

    def __init__(
        self,
        learning_rate: Any = 0.00176,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        if exclude_from_layer_adaptation is None:
            exclude_from_layer_adaptation = (*self._decay_exclusions, _STARTS_AT_ZERO)
        self._adaptation_exclusions = checked_patterns(
            "exclude_from_layer_adaptation", exclude_from_layer_adaptation
        )
        self._adaptation_flags = frozenset()
        # Ratios of the current step; Keras would track a bare dict.
        self._step = types.SimpleNamespace(ratios={})

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the slots and selects the variables that get a trust ratio."""
        if self.built:
            return
        super().build(variables)
        self._adaptation_flags = self._included(variables, self._adaptation_exclusions)
        self.last_trust_ratios = self.add_variable(
            shape=(len(self._adaptation_flags),),
            dtype="float32",
            aggregation="only_first_replica",
            name="last_trust_ratios",
        )

    @property
    def adapted_variables(self) -> list[keras.Variable]:
        """The variables of the built optimizer that get a trust ratio."""
        return [self._trainable_variables[i] for i in sorted(self._adaptation_flags)]

    def uses_layer_adaptation(self, variable: keras.Variable) -> bool:
        """Returns whether the built optimizer uses a trust ratio for this variable."""
        return self._get_variable_index(variable) in self._adaptation_flags

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        config["exclude_from_layer_adaptation"] = list(self._adaptation_exclusions)
        return config

    def _backend_update_step(self, grads, trainable_variables, scalars) -> None:
        self._step.ratios.clear()
        super()._backend_update_step(grads, trainable_variables, scalars)
        ratios = self._step.ratios
        if ratios:
            order = sorted(self._adaptation_flags)
            zero = ops.zeros((), "float32")
            stack = ops.stack([ratios.get(index, zero) for index in order])
            if self.loss_scale:  # ratios of a skipped step are meaningless
                kept = self.last_trust_ratios.value
                stack = ops.where(scalars["taken"], stack, kept)
            self.last_trust_ratios.assign(stack)

    def _scaled_update(self, update, variable):
        if not self.uses_layer_adaptation(variable):
            return update
        weight_norm = ops.sqrt(ops.sum(ops.square(variable)))
        update_norm = ops.sqrt(ops.sum(ops.square(update)))
        both = ops.logical_and(weight_norm > 0, update_norm > 0)
        # The inner `where` keeps 0/0 out of the branch that is not taken.
        ratio = weight_norm / ops.where(both, update_norm, 1.0)
        ratio = ops.where(both, ratio, 1.0)
        index = self._get_variable_index(variable)
        self._step.ratios[index] = ops.cast(ratio, "float32")
        return ratio * update
