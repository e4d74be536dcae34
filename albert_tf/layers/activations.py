"""Implements the activation functions that a config names."""

import math
from collections.abc import Callable

from keras import ops

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _SCALE


@ops.custom_gradient
def gelu_tanh(x):
    """Computes the tanh approximation of gelu, with a gradient that reuses the tanh.

    The same function as `keras.ops.gelu(x, approximate=True)`, whose gradient in
    TensorFlow goes through a power, most of the cost of a feed-forward on a CPU.
    """
    square = x * x
    # The share of x that passes, in (0, 1).
    gate = 0.5 * ops.tanh(x * (_SCALE + _CUBIC * square)) + 0.5
    y = x * gate

    def gradient(*arguments, upstream=None):
        # TensorFlow passes the upstream gradient by name, other backends do not.
        if upstream is None:
            (upstream,) = arguments
        # gate' = 2 gate (1 - gate) (scale + 3 cubic x^2), and x (1 - gate) = x - y.
        slope = 2.0 * _SCALE + 6.0 * _CUBIC * square
        return upstream * (gate * ((x - y) * slope + 1.0))

    return y, gradient


def get_activation(name: str) -> Callable:
    """Returns the function of an `AlbertConfig.hidden_act`.

    `gelu_new` is the tanh approximation, the one that the original's `gelu` computes
    (`modeling.get_activation`); it differs from the exact `gelu` by up to 1e-3.
    """
    return {
        "gelu_new": gelu_tanh,
        "gelu": lambda x: ops.gelu(x, approximate=False),
        "relu": ops.relu,
        "tanh": ops.tanh,
        "silu": ops.silu,
        "linear": lambda x: x,
    }[name]
