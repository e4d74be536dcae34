"""Implements the two-layer feed-forward part of a block.

Legend: `B` batch, `T` sequence, `D` hidden, `F` feed-forward.
"""

from typing import NamedTuple

import keras
from keras import ops

from albert_tf.layers.ops import get_activation, linear, plus, truncated_normal_dense


class FeedForwardTensors(NamedTuple):
    """Weights of one feed-forward in the compute dtype."""

    intermediate_kernel: keras.KerasTensor  # [D, F]
    intermediate_bias: keras.KerasTensor  # [F]
    output_kernel: keras.KerasTensor  # [F, D]
    output_bias: keras.KerasTensor  # [D]


@keras.saving.register_keras_serializable("albert_tf")
class FeedForward(keras.layers.Layer):
    """`act(x W1 + b1) W2 + b2`, with weights that can be read in advance.

    Args:
        hidden_size: int. `D`.
        intermediate_size: int. `F`.
        activation: str. See `activations.get_activation`.
        initializer_range: float. Standard deviation of the initial values.
        seed: int or None. Seed of the initial values.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: str = "gelu_new",
        initializer_range: float = 0.02,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.intermediate, self.output_dense = (
            truncated_normal_dense(
                size,
                initializer_range,
                plus(seed, number),
                dtype=self.dtype_policy,
                name=name,
            )
            for number, (name, size) in enumerate(
                (("intermediate", intermediate_size), ("output", hidden_size))
            )
        )

    def build(self, input_shape=None):
        self.intermediate.build((None, None, self.hidden_size))
        self.output_dense.build((None, None, self.intermediate_size))
        self.built = True

    def read(self) -> FeedForwardTensors:
        """Returns the weights in the compute dtype."""
        layers = (self.intermediate, self.output_dense)
        weights = [w for layer in layers for w in (layer.kernel, layer.bias)]
        return FeedForwardTensors(*(ops.cast(w, self.compute_dtype) for w in weights))

    def call(self, x, weights=None):
        """Maps `[B, T, D]` to `[B, T, D]`, before dropout and residual."""
        w = weights or self.read()
        inner = linear(x, w.intermediate_kernel, w.intermediate_bias)
        inner = get_activation(self.activation)(inner)
        return linear(inner, w.output_kernel, w.output_bias)
