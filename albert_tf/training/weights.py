"""Handles the weights of a run's model besides training them."""

import contextlib
import re
from collections.abc import Iterator

import keras

from albert_tf.models.base import weight_names
from albert_tf.training.engine import value_of


class WeightAverages:
    """Replaces the weights by the averages that an optimizer, already built, keeps.

    Does nothing if it keeps none. `averages` has them by the weights' canonical names.
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
        """Loads the averages into the model for good."""
        for name, variable in self._weights.items():
            variable.assign(value_of(self.averages[name]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Loads the averages into the model inside a `with` statement."""
        saved = {name: value_of(variable) for name, variable in self._weights.items()}
        try:
            self.replace_weights()
            yield
        finally:
            for name, value in saved.items():
                self._weights[name].assign(value)


def mark_trained(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Removes weights that a built optimizer has updated from `untrained_weights`.

    A bias is treated like its kernel: the gradient of one that is added to all choices
    consists of rounding errors, which can all be zero.
    """
    untrained = set(model.untrained_weights)
    variables = {k: v for k, v in weight_names(model).items() if v.trainable}
    for name in untrained & variables.keys():
        kernel = re.sub(r"/bias$", "/kernel", name)
        if any(
            optimizer.has_updated(variables[one])
            for one in {name, kernel} & variables.keys()
        ):
            untrained.remove(name)
    model.mark_untrained(untrained)
