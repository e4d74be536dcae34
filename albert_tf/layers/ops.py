"""Operations of the layers: activations, products, gathering, initial values.

They have gradients of few operations and, where a training step asks, are compiled
into fewer loops.

Legend: `B` batch, `T` sequence, `P` positions, `D` hidden, `I` inputs, `O` outputs.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import keras
from keras import ops

from albert_tf.config import AlbertConfig

_COMPILE = contextvars.ContextVar("albert_tf_fusion", default=None)


@contextlib.contextmanager
def fused_elementwise(compile_chain: Callable | None) -> Iterator[None]:
    """Compiles the functions marked by `fusible` that are called inside.

    Every thread has its own state: enter it in the thread that calls the layers.

    Args:
        compile_chain: Function that takes a function of tensors and returns it
            compiled; called every time, so it should remember. None changes nothing.
    """
    token = _COMPILE.set(compile_chain)
    try:
        yield
    finally:
        _COMPILE.reset(token)


def fusible(function: Callable) -> Callable:
    """Marks a function of tensors, element-wise and without variables."""

    @functools.wraps(function)
    def call(*tensors):
        compile_chain = _COMPILE.get()
        return (compile_chain(function) if compile_chain else function)(*tensors)

    return call


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


@ops.custom_gradient
def _linear(x, kernel, bias):
    # [M, I], [I, O], [O]
    def gradient(*arguments, upstream=None):
        # PyTorch passes the upstream gradient by name, other backends do not.
        if upstream is None:
            (upstream,) = arguments
        # The weights of a shared block are transposed once for all its applications,
        # because the compiler merges equal operations. Left to itself, TensorFlow
        # transposes inside each product, which makes it 1.5 times slower on a CPU; it
        # would also fold `ops.transpose` back into the product.
        transposed = ops.einsum("io->oi", kernel)
        return (
            ops.matmul(upstream, transposed),
            ops.matmul(ops.transpose(x), upstream),
            ops.sum(upstream, axis=0),
        )

    return ops.matmul(x, kernel) + bias, gradient


def linear(x, kernel, bias):
    """Computes `x W + b`.

    Args:
        x: `[B, T, I]`.
        kernel: `[I, O]`, of the dtype of `x`.
        bias: `[O]`, of the dtype of `x`.

    Returns:
        `[B, T, O]`.
    """
    B, T = ops.shape(x)[0], ops.shape(x)[1]
    inputs, outputs = kernel.shape
    flat = _linear(ops.reshape(x, (-1, inputs)), kernel, bias)
    return ops.reshape(flat, (B, T, outputs))


def gather_positions(x, positions):
    """Returns the rows of `x` `[B, T, D]` at `positions` int `[B, P]`: `[B, P, D]`."""
    # Gathers whole rows of a matrix: `take_along_axis` gathers every number by itself.
    B, T, D = ops.shape(x)
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.cast(positions, "int32") + first
    return ops.take(ops.reshape(x, (-1, D)), rows, axis=0)


def gather_places(x, places):
    """Returns the rows of `x` `[B, T, D]` at `places`: `[*places.shape, D]`.

    Args:
        x: `[B, T, D]`.
        places: int of any shape. Indices of the rows of `[B * T, D]`.
    """
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), places, axis=0)


_SKIP = contextvars.ContextVar("albert_tf_skip_initial_values", default=False)


@contextlib.contextmanager
def without_initial_values() -> Iterator[None]:
    """Sets kernels and tables to zero instead of random values before loading them.

    Drawing 223 million numbers takes longer and needs more memory than reading them.
    """
    token = _SKIP.set(True)
    try:
        yield
    finally:
        _SKIP.reset(token)


@keras.saving.register_keras_serializable("albert_tf")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """The original's initial values, or zeros within `without_initial_values`."""

    def __call__(self, shape, dtype=None):
        if _SKIP.get():
            return ops.zeros(shape, dtype=dtype)
        return super().__call__(shape, dtype=dtype)


def plus(seed: int | None, number: int) -> int | None:
    """Returns another seed, or None for None."""
    return None if seed is None else seed + number


def truncated_normal_dense(
    units: int, stddev: float, seed: int | None, **kwargs
) -> keras.layers.Dense:
    """Returns a dense layer with the original's initial values."""
    initializer = TruncatedNormal(stddev=stddev, seed=seed)
    return keras.layers.Dense(units, kernel_initializer=initializer, **kwargs)


class ConfiguredLayer(keras.layers.Layer):
    """A layer built from an `AlbertConfig` and a seed."""

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed

    def add_dense(self, units: int, name: str, part: int = 0, **kwargs):
        """Returns a dense layer of the same dtype, with a seed of its own."""
        return truncated_normal_dense(
            units,
            self.config.initializer_range,
            plus(self.seed, part),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )

    def get_config(self):
        config = self.config.to_dict()
        return {**super().get_config(), "config": config, "seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})
