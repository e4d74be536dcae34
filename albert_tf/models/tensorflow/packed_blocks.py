"""Repeats a block in bfloat16, in the form that oneDNN packs and fuses.

The weights of a product are constants here: only then does oneDNN rearrange them for
the matrix units (AMX) once instead of in every call, and add the bias and the
activation inside the product. All other weights are variables: TensorFlow's optimizer
does not recognize the forms to fuse if these are constants, too. A loop repeats the
block, because each product of the graph keeps its own rearranged copy, and twelve
copies have to be read from memory again and again.

Legend: `B` batch, `T` sequence, `M` all tokens `B * T`, `D` hidden, `N` heads, `H` head
size.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.models.backbone import AlbertBackbone

# Limit for all constants of a model. A serving process holds many copies of them: one
# rearranged for the products of each signature, and others in the graph.
MAX_BYTES = 32 * 1024**2
_numpy = keras.ops.convert_to_numpy


class _Product(NamedTuple):
    """Kernel and bias of one matrix multiplication."""

    kernel: np.ndarray  # [I, O]
    bias: tf.Variable  # [O]


class _Norm(NamedTuple):
    """Weights of one layer normalization."""

    gamma: tf.Variable  # [D]
    beta: tf.Variable  # [D]
    epsilon: float


class PackedBlocks:
    """Computes some layers with the same weights.

    Everything is bfloat16, as in a model of transformers of this dtype; oneDNN
    accumulates, and computes softmax and layer norm, in float32. The weights are read
    once, at the start.
    """

    def __init__(
        self, backbone: AlbertBackbone, row: tuple[int, ...], activation: Callable
    ):
        config, encoder = backbone.config, backbone.encoder
        self._heads, self._head_size = config.num_attention_heads, config.head_size
        self._activation = activation
        attention_number, attention_norm, ffn_number, ffn_norm = row
        attention = encoder.attentions[attention_number].dense
        self._qkv = _product([attention[name] for name in ("query", "key", "value")])
        self._output = _product([attention["output"]])
        self._attention_norm = _norm(encoder.attention_layer_norms[attention_norm])
        ffn = encoder.ffns[ffn_number]
        self._inner = _product([ffn.intermediate])
        self._outer = _product([ffn.output_dense])
        self._ffn_norm = _norm(encoder.ffn_layer_norms[ffn_norm])
        # Functions let a file hold the constants once for all its signatures.
        whole = tf.TensorSpec([], tf.int32)
        self._repeat = tf.function(
            self._repeated,
            autograph=False,
            input_signature=[
                tf.TensorSpec([None, config.hidden_size], tf.float32),
                whole,
                tf.TensorSpec([None, 1, 1, None], tf.float32),
                whole,
                whole,
            ],
        )

    def __call__(
        self, x: tf.Tensor, count: int, bias: tf.Tensor | None, shape
    ) -> tf.Tensor:
        """Returns the states `[M, D]` after `count` layers.

        Args:
            x: `[M, D]`, float32.
            bias: `[B, 1, 1, T]`, float32, or None. Added to the scores.
            shape: Shape of the rows, `(B, T)`, two scalars.
        """
        bias = tf.zeros([1, 1, 1, 1]) if bias is None else bias
        return self._repeat(x, count, bias, *shape)

    def _repeated(self, x, count, bias, B, T):
        bias = tf.cast(bias, tf.bfloat16)
        loop = tf.while_loop(
            lambda number, x: number < count,
            lambda number, x: (number + 1, self._block(x, bias, (B, T))),
            (0, tf.cast(x, tf.bfloat16)),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, x.shape[-1]])),
            parallel_iterations=1,
        )
        return tf.cast(loop[1], tf.float32)

    def _block(self, x, bias, shape) -> tf.Tensor:
        context = self._attend(x, bias, shape)
        x = _normalize(x + _linear(context, self._output), self._attention_norm)
        inner = self._activation(_linear(x, self._inner))
        return _normalize(x + _linear(inner, self._outer), self._ffn_norm)

    def _attend(self, x, bias, shape) -> tf.Tensor:
        """Returns the contexts `[M, D]`."""
        qkv = tf.reshape(
            _linear(x, self._qkv), [*shape, 3, self._heads, self._head_size]
        )
        q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]), 3)
        # TensorFlow fuses product, scale and mask into one operation.
        scale = tf.constant(1.0 / math.sqrt(self._head_size), tf.bfloat16)
        scores = tf.matmul(q, k, transpose_b=True) * scale + bias
        context = tf.matmul(tf.nn.softmax(scores), v)
        # The shape of `x`, not [-1, D]: the sum with `x` is fused only if the shapes
        # are known to agree.
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), tf.shape(x))


def pack(
    backbone: AlbertBackbone, activation: Callable
) -> dict[tuple[int, ...], PackedBlocks]:
    """Returns `PackedBlocks` for runs of layers, by their rows of `layer_table`.

    Layers without a neighbour of the same weights are left out: a loop gains nothing.
    If the constants would be larger than `MAX_BYTES`, or every layer has weights of its
    own, the result is empty.
    """
    table = backbone.config.layer_table()
    rows = {row for row, following in itertools.pairwise(table) if row == following}
    D, F = backbone.config.hidden_size, backbone.config.intermediate_size
    is_large = len(rows) * 2 * (4 * D * D + 2 * D * F) > MAX_BYTES
    if is_large or backbone.config.has_depth_weights:
        return {}
    return {row: PackedBlocks(backbone, row, activation) for row in rows}


def _linear(x, weights: _Product) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, weights.kernel), weights.bias)


def _normalize(x, norm: _Norm) -> tf.Tensor:
    """Computes layer normalization of `[M, D]`."""
    # Written as a normalization of each row over a batch, followed by the scale, as in
    # Keras 2: TensorFlow's optimizer fuses exactly this form into one operation.
    rows, D = tf.shape(x)[0], x.shape[-1]
    nothing = tf.constant([])
    normal, *_ = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, [1, rows, D, 1]),
        scale=tf.ones([rows]),
        offset=tf.zeros([rows]),
        mean=nothing,
        variance=nothing,
        epsilon=norm.epsilon,
        data_format="NCHW",
        is_training=True,
    )
    return tf.reshape(normal, tf.shape(x)) * norm.gamma + norm.beta


def _product(layers: list[keras.layers.Dense]) -> _Product:
    kernel = np.concatenate([_numpy(layer.kernel) for layer in layers], axis=1)
    bias = np.concatenate([_numpy(layer.bias) for layer in layers])
    kernel = kernel.astype(tf.bfloat16.as_numpy_dtype)
    return _Product(kernel, _variable(bias))


def _norm(layer) -> _Norm:
    weights = (_variable(_numpy(weight)) for weight in (layer.gamma, layer.beta))
    return _Norm(*weights, layer.epsilon)


def _variable(value: np.ndarray) -> tf.Variable:
    return tf.Variable(tf.cast(value, tf.bfloat16), trainable=False)
