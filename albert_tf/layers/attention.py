"""Implements self-attention whose weights are read once and applied many times.

Legend: `B` batch, `T` sequence, `D` hidden, `N` heads, `H` head size, `U` readers.
"""

import math
from typing import NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.ops import ConfiguredLayer, gather_places, linear

# Added to the scores of masked keys, as in the original. Finite on purpose: a row
# without real tokens then attends as if unmasked, and nothing becomes NaN.
MASKED_SCORE = -10000.0


class Readers(NamedTuple):
    """Tokens that alone read the others, as `[CLS]` does in the last block."""

    places: keras.KerasTensor  # int32 [U], indices of the rows of [B * T, D]
    # int32 [U], the row of the batch that each is in; None is one in every row.
    rows: keras.KerasTensor | None = None

    def gather(self, x):
        """Returns, for every reader, its row of `x` `[B, ...]`: `[U, ...]`."""
        return x if self.rows is None else ops.take(x, self.rows, axis=0)


def attention_bias(padding_mask=None, pack_ids=None, readers=None):
    """Returns what is added to the attention scores.

    Args:
        padding_mask: `[B, T]` or None. Non-zero where a key may be attended.
        pack_ids: int32 `[B, T]` or None. The example of a packed row that a token
            belongs to (0 is padding). Tokens see only their own example.
        readers: `Readers` or None. None is all tokens.

    Returns:
        float32 `[B, 1, 1, T]` or, for packed rows, `[B, 1, T, T]`; for readers
        `[U, 1, 1, T]`. None if the first two arguments are None.
    """
    if readers is not None:
        if pack_ids is not None:
            own = ops.take(ops.reshape(pack_ids, (-1,)), readers.places, axis=0)
            visible = ops.equal(readers.gather(pack_ids), own[:, None])
        elif padding_mask is not None:
            visible = ops.not_equal(readers.gather(padding_mask), 0)
        else:
            return None
        visible = ops.expand_dims(visible, (1, 2))
    elif pack_ids is not None:
        visible = ops.equal(pack_ids[:, None, :, None], pack_ids[:, None, None, :])
    elif padding_mask is not None:
        visible = ops.expand_dims(ops.not_equal(padding_mask, 0), (1, 2))
    else:
        return None
    return (1.0 - ops.cast(visible, "float32")) * MASKED_SCORE


@keras.saving.register_keras_serializable("albert_tf")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention (the original's `attention_layer`) as two functions.

    Query, key and value are three kernels, because LAMB's trust ratio and every
    checkpoint format treat them separately; `read` joins them once per forward pass.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        names = ("query", "key", "value", "output")
        self.dense = {
            name: self.add_dense(config.hidden_size, name, part)
            for part, name in enumerate(names)
        }

    def build(self, input_shape=None):
        for layer in self.dense.values():
            layer.build((None, None, self.config.hidden_size))
        self.built = True

    def read(self) -> tuple:
        """Returns kernel and bias of query, key and value joined, then the output's.

        `[D, 3D]`, `[3D]`, `[D, D]` and `[D]` in the compute dtype.
        """
        d = self.dense
        qkv = (d["query"], d["key"], d["value"])
        cast = lambda weights: [ops.cast(w, self.compute_dtype) for w in weights]  # noqa: E731
        return (
            ops.concatenate(cast(layer.kernel for layer in qkv), axis=1),
            ops.concatenate(cast(layer.bias for layer in qkv), axis=0),
            *cast([d["output"].kernel, d["output"].bias]),
        )

    def call(
        self,
        x,
        bias=None,
        training=False,
        weights=None,
        probs_dropout=None,
        readers=None,
    ):
        """Computes the attention.

        Args:
            x: `[B, T, D]`. The input.
            bias: tensor, callable or None. From `attention_bias`, or what applies it
                to the scores.
            training: bool. Not used here.
            weights: tuple or None. From `read`; None reads them now.
            probs_dropout: callable or None. Applied to the probabilities.
            readers: `Readers` or None. None is all tokens.

        Returns:
            `[B, T, D]`, before dropout and residual, and the probabilities
            `[B, N, T, T]`; for readers `[U, 1, D]` and `[U, N, 1, T]`.
        """
        qkv_kernel, qkv_bias, output_kernel, output_bias = weights or self.read()
        q, k, v = self._project(x, qkv_kernel, qkv_bias, readers)
        B, T = ops.shape(q)[0], ops.shape(q)[2]
        scale = 1.0 / math.sqrt(self.config.head_size)
        scores = ops.matmul(q * scale, ops.swapaxes(k, 2, 3))
        # The softmax is computed in float32 or more.
        scores = ops.cast(scores, keras.backend.result_type(x.dtype, "float32"))
        if callable(bias):
            scores = bias(scores)
        elif bias is not None:
            # Keras casts a layer's arguments to the compute dtype.
            scores = scores + ops.cast(bias, scores.dtype)
        # Keras warns of a softmax over one value, which a sequence of length 1 has.
        one = scores.shape[-1] == 1
        probs = ops.ones_like(scores) if one else ops.softmax(scores, axis=-1)
        probs = ops.cast(probs, x.dtype)
        kept = probs if probs_dropout is None else probs_dropout(probs)
        context = ops.transpose(ops.matmul(kept, v), (0, 2, 1, 3))
        context = ops.reshape(context, (B, T, self.config.hidden_size))
        return linear(context, output_kernel, output_bias), probs

    def _project(self, x, kernel, bias, readers):
        """Returns the queries `[B, N, T, H]`, keys and values; `[U, N, ...]`."""
        N, D, H = (
            self.config.num_attention_heads,
            self.config.hidden_size,
            self.config.head_size,
        )
        B, T = ops.shape(x)[0], ops.shape(x)[1]

        def heads(kernel, bias):
            parts = kernel.shape[1] // D
            joined = ops.reshape(linear(x, kernel, bias), (B, T, parts, N, H))
            # Not joined[0], ...: the gradient of a slice is padded copies of all.
            return ops.unstack(ops.transpose(joined, (2, 0, 3, 1, 4)), parts, axis=0)

        if readers is None:
            return heads(kernel, bias)
        q = gather_places(x, readers.places[:, None])
        q = linear(q, kernel[:, :D], bias[:D])
        k, v = map(readers.gather, heads(kernel[:, D:], bias[D:]))
        return ops.reshape(q, (-1, N, 1, H)), k, v
