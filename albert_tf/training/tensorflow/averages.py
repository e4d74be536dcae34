"""The exponential moving average of the weights, and the model that has them."""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf

from albert_tf.models.base import weight_names


class WeightAverages:
    """Puts the averages that an optimizer keeps in the place of the weights.

    Without averages, everything here does nothing.

    Args:
        model: Keras model of the run.
        optimizer: `AdamStyleOptimizer` of the run, already built.

    Attributes:
        averages: dict. The averages by the canonical names of the weights.
    """

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer):
        weights = weight_names(model) if optimizer.ema_decay else {}
        self._weights = {k: v for k, v in weights.items() if v.trainable}
        self.averages: dict[str, keras.Variable] = {
            name: optimizer.slot(variable, "average")
            for name, variable in self._weights.items()
        }

    def __bool__(self) -> bool:
        return bool(self.averages)

    def replace_weights(self) -> None:
        """Gives the model the averages, for good."""
        for name, variable in self._weights.items():
            variable.assign(_value(self.averages[name]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Gives the model the averages inside a `with` statement."""
        kept = {name: _value(variable) for name, variable in self._weights.items()}
        try:
            self.replace_weights()
            yield
        finally:
            for name, value in kept.items():
                self._weights[name].assign(value)


def _value(variable: keras.Variable) -> tf.Tensor:
    """Returns the value of now; with several replicas, all of them have the same."""
    return tf.identity(tf.convert_to_tensor(variable.value))
