"""Implements AdamW as BERT and ALBERT define it."""

import keras
from keras import ops

from albert_tf.optimizers.base import AdamStyleOptimizer


@keras.saving.register_keras_serializable("albert_tf")
class AdamW(AdamStyleOptimizer):
    """Adam with decoupled weight decay and without bias correction.

    The original's `AdamWeightDecayOptimizer`: `w -= rate * (m / (sqrt(v) + epsilon) +
    decay * w)`. Used for fine-tuning. See `AdamStyleOptimizer` for the arguments.

    Differs from `keras.optimizers.AdamW`: no bias correction, epsilon 1e-6, names
    excluded from decay by default, and the order of a step (see `base.py`).
    """

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates one variable and its slots."""
        if keras.backend.backend() != "tensorflow" or variable.dtype != "float32":
            super().update_step(gradient, variable, learning_rate)
            return
        from albert_tf.kernels.adam import apply_adam

        index = self._get_variable_index(variable)
        rate = ops.cast(learning_rate, "float32")
        if self._rates[index] != 1:
            rate = rate * self._rates[index]
        if self.weight_decay_rate and self.uses_weight_decay(variable):
            self.assign_sub(variable, rate * self.weight_decay_rate * variable)
        apply_adam(
            variable,
            self._m[index],
            self._v[index],
            ops.cast(gradient, "float32"),
            rate,
            self.beta_1,
            self.beta_2,
            self.epsilon,
        )
        self._update_average(variable, index)
