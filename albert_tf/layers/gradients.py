"""Activations, products and layer normalization, with gradients of their own.

The gradients consist of few operations and, where a training step asks for it, are
compiled into fewer loops.

Legend: `B` batch, `T` sequence, `D` hidden, `I` inputs, `O` outputs.
"""

import functools
import math
from collections.abc import Callable

import keras
from keras import ops

from albert_tf.kernels.device import is_cuda, recomputed
from albert_tf.layers.context import fusible

_SCALE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _SCALE


def _square_and_gate(x):
    square = x * x
    # The second value is the share of x that passes, in (0, 1).
    return square, 0.5 * ops.tanh(x * (_SCALE + _CUBIC * square)) + 0.5


def _in_range(function: Callable) -> Callable:
    """Computes a function of float16 in float32: the square of 256 is infinite."""

    @functools.wraps(function)
    def call(*tensors):
        dtype = tensors[0].dtype
        if keras.backend.standardize_dtype(dtype) != "float16":
            return function(*tensors)
        value = function(*(ops.cast(x, "float32") for x in tensors))
        return ops.cast(value, dtype)

    return call


@fusible
@_in_range
def _gelu(x):
    return x * _square_and_gate(x)[1]


@fusible
@_in_range
def _gelu_gradient(x, upstream):
    square, gate = _square_and_gate(x)
    # gate' = 2 gate (1 - gate) (scale + 3 cubic x^2), and x (1 - gate) = x - y.
    slope = 2.0 * _SCALE + 6.0 * _CUBIC * square
    return upstream * (gate * ((x - x * gate) * slope + 1.0))


def _custom_gradient(function: Callable) -> Callable:
    """Marks a function that returns its value and a function of its gradients."""

    @ops.custom_gradient
    @functools.wraps(function)
    def call(*tensors):
        value, gradient = function(*tensors)

        def of_upstream(*arguments, upstream=None):
            # PyTorch passes it by name, after the tensors; other backends alone.
            return gradient(arguments[0] if upstream is None else upstream)

        return value, of_upstream

    return call


@_custom_gradient
def gelu_tanh(x):
    """Computes the tanh approximation of gelu, with a gradient that reuses the tanh.

    It equals `keras.ops.gelu(x, approximate=True)`, whose gradient in TensorFlow
    contains a power, which dominates the cost of a feed-forward on a CPU.
    """

    def gradient(upstream):
        # Recomputed from x, for second derivatives. A compiled graph merges this with
        # the forward pass; otherwise a fused loop reads the memory only once. On an
        # H100, merging would keep the gate: a third array of the size of x per layer.
        return _gelu_gradient(recomputed(x), upstream)

    return _gelu(x), gradient


def get_activation(name: str) -> Callable:
    """Returns the function of an `AlbertConfig.hidden_act`.

    `gelu_new` is the tanh approximation that the original's `gelu` computes
    (`modeling.get_activation`); it differs from the exact `gelu` by up to 1e-3.
    """
    return {
        "gelu_new": gelu_tanh,
        "gelu": _in_range(lambda x: ops.gelu(x, approximate=False)),
        "relu": ops.relu,
        "tanh": ops.tanh,
        "silu": _in_range(ops.silu),
        "linear": lambda x: x,
    }[name]


# In float16, TensorFlow's sum of 60,000 ones is 8,192.
_sum_of_rows = _in_range(lambda x: ops.sum(x, axis=0))


@_custom_gradient
def _linear(x, kernel, bias):
    # [M, I], [I, O], [O]
    def gradient(upstream):
        # The weights of a shared block are transposed once for all its applications,
        # because the compiler merges equal operations. By default, TensorFlow
        # transposes inside each product, which is 1.5 times slower on a CPU; it would
        # also fold `ops.transpose` back into the product.
        transposed = ops.einsum("io->oi", kernel)
        return (
            ops.matmul(upstream, transposed),
            ops.matmul(ops.transpose(x), upstream),
            _sum_of_rows(upstream),
        )

    return ops.matmul(x, kernel) + bias, gradient


def linear(x, kernel, bias):
    """Computes `x W + b`, `[B, T, O]`, of x `[B, T, I]`, W `[I, O]` and b `[O]`.

    All of them have the same dtype.
    """
    B, T = ops.shape(x)[0], ops.shape(x)[1]
    inputs, outputs = kernel.shape
    flat = _linear(ops.reshape(x, (-1, inputs)), kernel, bias)
    return ops.reshape(flat, (B, T, outputs))


def add_deltas(y, x, own, *names):
    """Adds `x A B + c` of the named kernels, side by side, to their products with `x`.

    `own` holds a layer's `A` `[I, R]`, `B` `[R, P]` and `c` `[P]` by the names of
    kernels. A kernel that is not in it, next to others, has P = I.
    """
    if not any(name in own for name in names):
        return y
    flat, parts = ops.reshape(x, (-1, x.shape[-1])), []
    for name in names:
        if name in own:
            a, b, bias = own[name]
            parts.append(_linear(ops.matmul(flat, a), b, bias))
        else:
            parts.append(ops.zeros_like(flat))
    delta = ops.concatenate(parts, axis=-1) if parts[1:] else parts[0]
    return y + ops.reshape(delta, ops.shape(y))


@keras.saving.register_keras_serializable("albert_tf")
class LayerNorm(keras.layers.Layer):
    """Layer normalization over the last axis, computed in float32 or more.

    It computes the same as `keras.layers.LayerNormalization`, whose gradient TensorFlow
    derives operation by operation: on a CPU this layer takes about two thirds of the
    time.

    Args:
        epsilon: float. Added to the variance.

    Call arguments:
        inputs: `[..., D]`.

    Returns:
        `[..., D]` in the compute dtype.
    """

    def __init__(self, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        # Full precision, as in Keras: bfloat16 has no number between 1 and 1.0078.
        self.gamma, self.beta = (
            self.add_weight(
                name=name,
                shape=(input_shape[-1],),
                initializer=initializer,
                autocast=False,
            )
            for name, initializer in (("gamma", "ones"), ("beta", "zeros"))
        )

    def call(self, inputs):
        return self.normalize(inputs, *self.read())

    def read(self) -> tuple:
        """Returns gamma and beta `[D]`, in the dtype of the weights."""
        return tuple(ops.convert_to_tensor(w) for w in (self.gamma, self.beta))

    def normalize(self, inputs, gamma, beta):
        """Normalizes with weights from `read`; in a call, Keras would cast them."""
        return ops.cast(
            _normalize(inputs, gamma, beta, self.epsilon), self.compute_dtype
        )

    def compute_output_shape(self, input_shape):
        return input_shape


def _normalize(x, gamma, beta, epsilon):
    dtype = keras.backend.result_type(x.dtype, "float32")
    gamma, beta = (ops.cast(v, dtype) for v in (gamma, beta))

    def normal_and_inverse(x):
        is_half = keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16")
        x = ops.cast(x, dtype)
        mean = ops.mean(x, axis=-1, keepdims=True)
        centered = x - mean
        if is_half and is_cuda():
            # Both sums in one pass on an H100. What the subtraction loses is less than
            # what was lost when x was rounded.
            variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
            variance = ops.maximum(variance - ops.square(mean), 0.0)
        else:
            variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)
        return centered * inverse, inverse

    @_custom_gradient
    def normalize(x, gamma, beta):
        def gradient(upstream):
            # Recomputed from x, for second derivatives, and because x may take half the
            # memory of its cast value. A compiled graph merges equal operations.
            normal, inverse = normal_and_inverse(x)
            others = tuple(range(len(x.shape) - 1))
            scaled = upstream * gamma
            mean = ops.mean(scaled, axis=-1, keepdims=True)
            slope = ops.mean(scaled * normal, axis=-1, keepdims=True)
            return (
                ops.cast((scaled - mean - normal * slope) * inverse, x.dtype),
                ops.sum(upstream * normal, axis=others),
                ops.sum(upstream, axis=others),
            )

        return normal_and_inverse(x)[0] * gamma + beta, gradient

    return normalize(x, gamma, beta)
