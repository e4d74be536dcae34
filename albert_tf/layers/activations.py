"""Activation functions by the name a config gives them."""

from collections.abc import Callable

from keras import ops


def get_activation(name: str) -> Callable:
    """The function of `AlbertConfig.hidden_act`.

    `gelu_new` is the tanh approximation, the one that the original's `gelu` computes
    (`modeling.get_activation`); it differs from the exact `gelu` by up to 1e-3.
    """
    return {
        "gelu_new": lambda x: ops.gelu(x, approximate=True),
        "gelu": lambda x: ops.gelu(x, approximate=False),
        "relu": ops.relu,
        "tanh": ops.tanh,
        "silu": ops.silu,
        "linear": lambda x: x,
    }[name]
