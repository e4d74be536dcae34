"""Implements AdamW as BERT and ALBERT define it."""

import keras

from albert_tf.optimizers.base import AdamStyleOptimizer


@keras.saving.register_keras_serializable("albert_tf")
class AdamW(AdamStyleOptimizer):
    """Adam with decoupled weight decay and without bias correction.

    The original's `AdamWeightDecayOptimizer`: `w -= rate * (m / (sqrt(v) + epsilon) +
    decay * w)`. Used for fine-tuning. See `AdamStyleOptimizer` for the arguments.

    Differs from `keras.optimizers.AdamW`: no bias correction, epsilon 1e-6, names
    excluded from decay by default, and the order of a step (see `base.py`).
    """
