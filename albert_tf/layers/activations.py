"""Implements the activation functions that a config names."""

import math
from collections.abc import Callable

from keras import ops

from albert_tf.layers.fusion import fusible

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _SCALE


def _square_and_gate(x):
    square = x * x
    # The share of x that passes, in (0, 1).
    return square, 0.5 * ops.tanh(x * (_SCALE + _CUBIC * square)) + 0.5


@fusible
def _gelu(x):
    return x * _square_and_gate(x)[1]


@fusible
def _gelu_gradient(x, upstream):
    square, gate = _square_and_gate(x)
    # gate' = 2 gate (1 - gate) (scale + 3 cubic x^2), and x (1 - gate) = x - y.
    slope = 2.0 * _SCALE + 6.0 * _CUBIC * square
    return upstream * (gate * ((x - x * gate) * slope + 1.0))


@ops.custom_gradient
def gelu_tanh(x):
    """Computes the tanh approximation of gelu, with a gradient that reuses the tanh.

    The same function as `keras.ops.gelu(x, approximate=True)`, whose gradient in
    TensorFlow goes through a power, most of the cost of a feed-forward on a CPU.
    """

    def gradient(*arguments, upstream=None):
        # PyTorch passes the upstream gradient by name, other backends do not.
        if upstream is None:
            (upstream,) = arguments
        # Computed from x again, for second derivatives. A compiled graph merges it
        # with the forward pass, or else a fused loop passes over the memory once.
        return _gelu_gradient(x, upstream)

    return _gelu(x), gradient


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
