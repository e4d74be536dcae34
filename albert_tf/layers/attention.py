"""Implements self-attention whose weights are read once and applied many times.

Legend: `B` batch, `T` sequence, `D` hidden, `N` heads, `H` head size, `U` readers.
"""

import contextlib
import contextvars
import math
from typing import NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.kernels.device import Device, adds_in_order, current_device, recomputed
from albert_tf.layers.configured import ConfiguredLayer
from albert_tf.layers.context import within
from albert_tf.layers.gathering import gather_places
from albert_tf.layers.gradients import add_deltas, linear

# Added to the scores of masked keys, as in the original. Finite on purpose: a row
# without real tokens then attends as if unmasked, and nothing becomes NaN.
MASKED_SCORE = -10000.0

MATMUL, CUDNN, SPLASH, XLA, TORCH = "matmul", "cudnn", "splash", "xla", "torch"
AUTO, FUSED = "auto", "fused"
_FORM = contextvars.ContextVar("albert_tf_attention", default=AUTO)
_PADDING_LAST = contextvars.ContextVar("albert_tf_padding_last", default=False)


def attention_form(form: str) -> contextlib.AbstractContextManager[None]:
    """Chooses the form of the attention of the encoders that are called inside.

    Every form computes the same function. The choice is local to a thread: enter it in
    the thread that calls the layers.

    Args:
        form: str. `AUTO`: a fused kernel, which never holds the probabilities, where
            the backend has one that is faster. `MATMUL`: two products and a softmax.
            `FUSED`: the arguments of the fused kernel everywhere; where JAX has no
            kernel, XLA computes with them. If the probabilities are needed, or dropout
            is applied to them, `MATMUL` is used under every form.
    """
    require(
        form in (AUTO, MATMUL, FUSED),
        f"attention_form={form!r}: must be {AUTO!r}, {MATMUL!r} or {FUSED!r}",
    )
    return within(_FORM, form)


def padding_last() -> contextlib.AbstractContextManager[None]:
    """States that rows inside have all padding at their end, as in every data set here.

    A fused kernel then need not move tokens, which takes two passes over memory per
    layer on an H100, because XLA keeps the arrays in another layout.
    """
    return within(_PADDING_LAST, True)


def choose_attention(
    form: str,
    backend: str,
    device: Device,
    dtype: str,
    head_size: int,
    length: int | None,
    packed: bool,
) -> str:
    """Returns the form that computes the attention if no one needs the probabilities.

    The device is that of JAX. Raises `UsageError` if `FUSED` is not available.
    """
    fused = {"jax": XLA, "torch": TORCH}.get(backend)
    require(
        fused or form != FUSED,
        f"attention_form={form!r}: {backend} has no fused attention",
    )
    if form == MATMUL or fused is None:
        return MATMUL
    # Requirements of cuDNN's kernel: heads up to 128 on every generation since Ampere.
    # The unneeded gradient of packed rows' bias exists for even lengths only.
    fits = dtype in ("bfloat16", "float16") and head_size % 8 == 0 and head_size <= 128
    if backend == "jax" and device.cuda >= 8 and fits and not (packed and length % 2):
        return CUDNN
    # A TPU's kernel works on blocks of at least 128 tokens.
    fits = dtype in ("bfloat16", "float32") and head_size in (64, 128)
    if backend == "jax" and device.tpu and fits and length and length % 128 == 0:
        return SPLASH
    return MATMUL if fused == XLA and form == AUTO else fused


class Readers(NamedTuple):
    """Tokens that read the others but are not read, like `[CLS]` in the last block."""

    places: keras.KerasTensor  # int32 [U], indices of the rows of [B * T, D]
    # int32 [U], the row of the batch that contains each; None is one in every row.
    rows: keras.KerasTensor | None = None

    def gather(self, x):
        """Returns, for every reader, its row of `x` `[B, ...]`: `[U, ...]`."""
        return x if self.rows is None else ops.take(x, self.rows, axis=0)


def kernel_for(dtype: str, head_size: int, length: int | None, packed: bool) -> str:
    """Returns the choice of `choose_attention` on this machine, in the current form."""
    form, backend, device = _FORM.get(), keras.backend.backend(), Device()
    # The gradient of cuDNN's kernel does not add in a fixed order, and XLA of jax
    # 0.11.2 then fails to run it.
    if backend == "jax" and form != MATMUL and not adds_in_order():
        device = current_device()
    return choose_attention(form, backend, device, dtype, head_size, length, packed)


def attention_bias(padding_mask=None, pack_ids=None, readers=None):
    """Returns the bias that is added to the scores, for all tokens or readers.

    Args:
        padding_mask: `[B, T]` or None. Non-zero where a key may be attended.
        pack_ids: int32 `[B, T]` or None. The example of a packed row that a token
            belongs to (0 is padding). Tokens see only their own example.

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


def _segments(padding_mask, pack_ids):
    """Returns an id of every query and every key; equal ones see each other."""
    if pack_ids is not None:
        return pack_ids, pack_ids
    if padding_mask is None:
        return None
    real = ops.cast(ops.not_equal(padding_mask, 0), "int32")
    # A row without real tokens attends as if unmasked.
    keys = ops.where(ops.any(real, axis=-1, keepdims=True), real, 1)
    return ops.ones_like(real), keys


class Fused:
    """The inputs of a fused kernel, prepared once for all layers.

    JAX's kernels read the number of keys, not a mask, and skip the others. So real
    tokens are moved before padding where the data has padding elsewhere; attention does
    not depend on the order. Packed rows have a bias, which those kernels read. A TPU's
    kernel reads ids of queries and keys instead, and needs no order.

    Args:
        kernel: str. `CUDNN`, `SPLASH`, `XLA` or `TORCH`.
        padding_mask, pack_ids: See `attention_bias`.
    """

    def __init__(self, kernel: str, padding_mask, pack_ids, dtype: str):
        self.kernel = kernel
        # One product of all three would be split by a pass over memory, and its
        # gradients joined by another: together 0.48 GB per layer of base, compiled for
        # an H100, which saves 0.35 GB in products.
        self.reads_joined = kernel in (TORCH, SPLASH)
        self._bias = self._lengths = self._order = self._segments = None
        if kernel == SPLASH:
            self._segments = _segments(padding_mask, pack_ids)
        elif pack_ids is None and padding_mask is not None and kernel != TORCH:
            real = ops.cast(ops.not_equal(padding_mask, 0), "int32")
            count = ops.sum(real, axis=-1)
            # A row without real tokens attends as if unmasked.
            self._lengths = ops.where(count > 0, count, real.shape[1])
            if not _PADDING_LAST.get():
                self._order = ops.argsort(1 - real, axis=-1)
        elif (bias := attention_bias(padding_mask, pack_ids)) is not None:
            self._bias = ops.cast(bias, dtype)  # cuDNN's gradient needs this dtype

    def arrange(self, x):
        """Returns `x` `[B, T, D]` with the real tokens of each row first."""
        return self._moved(x, lambda order: order)

    def restore(self, x):
        """Undoes `arrange`."""
        return self._moved(x, lambda order: ops.argsort(order, axis=-1))

    def _moved(self, x, places):
        if self._order is None:
            return x
        from albert_tf.kernels.attention import reorder

        return reorder(x, places(self._order))

    def attend(self, q, k, v):
        """Returns the contexts of the heads; all tensors are `[B, T, N, H]`."""
        from albert_tf.kernels import attention

        if self.kernel == TORCH:
            return attention.attend_in_torch(q, k, v, self._bias)
        if self.kernel == SPLASH:
            return attention.attend_on_tpu(q, k, v, self._segments)
        return attention.attend_in_jax(q, k, v, self._bias, self._lengths, self.kernel)


@keras.saving.register_keras_serializable("albert_tf")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention (the original's `attention_layer`) as two functions.

    Query, key and value have separate kernels, because LAMB's trust ratio and every
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

    def read(self, joined: bool = True) -> tuple:
        """Returns kernels and biases of query, key and value, then the output's.

        All are in the compute dtype. The first two are tuples of three, or if joined,
        of one `[D, 3D]` and one `[3D]`.
        """
        d = self.dense
        qkv = (d["query"], d["key"], d["value"])
        cast = lambda weights: tuple(ops.cast(w, self.compute_dtype) for w in weights)  # noqa: E731
        kernels, biases = (
            cast(getattr(layer, name) for layer in qkv) for name in ("kernel", "bias")
        )
        if joined:
            kernels = (ops.concatenate(kernels, axis=1),)
            biases = (ops.concatenate(biases, axis=0),)
        return kernels, biases, *cast([d["output"].kernel, d["output"].bias])

    def call(
        self,
        x,
        bias=None,
        training=False,
        weights=None,
        probs_dropout=None,
        readers=None,
        own=None,
    ):
        """Computes the attention.

        Args:
            x: `[B, T, D]`. The input.
            bias: tensor, callable, `Fused` or None. From `attention_bias`, or a
                function that applies it to the scores, or a kernel.
            training: bool. Not used here.
            weights: tuple or None. From `read`; None reads them now.
            probs_dropout: callable or None. Applied to the probabilities.
            readers: `Readers` or None. None is all tokens.
            own: dict or None. From `encoder.DepthWeights.read`.

        Returns:
            `[B, T, D]`, before dropout and residual, and the probabilities `[B, N, T,
            T]`, or None with a kernel; for readers `[U, 1, D]` and `[U, N, 1, T]`.
        """
        *qkv, output_kernel, output_bias = weights or self.read()
        is_fused, own = isinstance(bias, Fused), own or {}
        q, k, v = self._project(x, *qkv, readers, own, heads_last=is_fused)
        if is_fused:
            context, probs = bias.attend(q, k, v), None
        else:
            context, probs = self._attend(q, k, v, bias, probs_dropout)
        shape = (*ops.shape(context)[:2], self.config.hidden_size)
        context = ops.reshape(context, shape)
        update = linear(context, output_kernel, output_bias)
        return add_deltas(update, context, own, "attention_output"), probs

    def _attend(self, q, k, v, bias, probs_dropout):
        """Returns the heads' contexts `[B, T, N, H]`, and probabilities if computed."""
        scale = 1.0 / math.sqrt(self.config.head_size)
        scores = ops.matmul(q * scale, ops.swapaxes(k, 2, 3))
        # The softmax is computed in float32 or more.
        scores = ops.cast(scores, keras.backend.result_type(v.dtype, "float32"))
        if callable(bias):
            scores = bias(scores)
        elif bias is not None:
            # Keras casts a layer's arguments to the compute dtype.
            scores = scores + ops.cast(bias, scores.dtype)
        # Keras warns about a softmax over one value, as for a sequence of length 1.
        one = scores.shape[-1] == 1
        probs = ops.ones_like(scores) if one else ops.softmax(scores, axis=-1)
        probs = ops.cast(probs, v.dtype)
        dropped = probs if probs_dropout is None else probs_dropout(probs)
        return ops.transpose(ops.matmul(dropped, v), (0, 2, 1, 3)), probs

    def _project(self, x, kernels, biases, readers, own, heads_last=False):
        """Returns queries `[B, N, T, H]` (or `[B, T, N, H]`), keys and values."""
        axes = (2, 0, 1, 3, 4) if heads_last else (2, 0, 3, 1, 4)
        N, H = self.config.num_attention_heads, self.config.head_size
        D = self.config.hidden_size
        B, T = ops.shape(x)[0], ops.shape(x)[1]

        def heads(kernel, bias, *names):
            parts = len(names)
            joined = add_deltas(linear(x, kernel, bias), x, own, *names)
            joined = ops.reshape(joined, (B, T, parts, N, H))
            # Unstack instead of indexing: the gradient of each slice would be a
            # zero-padded copy of the whole tensor.
            return ops.unstack(ops.transpose(joined, axes), parts, axis=0)

        names = ["query", "key", "value"]
        if readers is None and kernels[1:]:
            found = []
            for part in zip(kernels, biases, names, strict=True):
                found.append(heads(*part)[0])
                # So that each product adds its gradient to the sum of the others.
                x = recomputed(x)
            return found
        kernel, bias = ops.concatenate(kernels, axis=1), ops.concatenate(biases, axis=0)
        if readers is None:
            return heads(kernel, bias, *names)
        first = gather_places(x, readers.places[:, None])
        q = linear(first, kernel[:, :D], bias[:D])
        q = add_deltas(q, first, own, "query")
        k, v = map(readers.gather, heads(kernel[:, D:], bias[D:], "key", "value"))
        return ops.reshape(q, (-1, N, 1, H)), k, v
