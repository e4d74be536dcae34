"""Computes an encoder for serving, in the form that TensorFlow's optimizer fuses.

oneDNN adds the bias and applies the activation inside a matrix multiplication if the
graph contains `MatMul`, `BiasAdd` and the activation of `tf.nn` in sequence, and on
matrices. Keras's layers use them on `[B, T, D]`. Everything that does not change
between requests (query, key and value in one matrix, the scale of the scores, weights
in another dtype) is computed when the model is exported.

Legend: `B` batch, `T` sequence, `M` all tokens `B * T`, `E` embedding, `D` hidden, `N`
heads, `H` head size.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import features
from albert_tf.errors import UsageError, require
from albert_tf.layers.attention import MASKED_SCORE
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import as_inputs
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.exits import ElasticClassifier, Start
from albert_tf.models.tensorflow import packed_blocks

PRECISIONS = ("float32", "bfloat16")
_numpy = keras.ops.convert_to_numpy
_ACTIVATIONS: dict[str, Callable] = {
    "gelu_new": functools.partial(tf.nn.gelu, approximate=True),
    "gelu": functools.partial(tf.nn.gelu, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "silu": tf.nn.silu,
    "linear": tf.identity,
}


class _Linear(NamedTuple):
    """Kernel and bias of one matrix multiplication."""

    kernel: tf.Variable  # [I, O]
    bias: tf.Variable  # [O]


# The weights, or a function that reads them.
_Weights = _Linear | Callable[[], _Linear]


class FastForward:
    """Computes the outputs of a backbone in fewer and larger operations.

    In bfloat16, `packed_blocks` computes the layers, and embeddings and pooler stay
    float32. Where it does not apply (the last layer for the first token alone, states
    of single layers, early exits, layers that share no weights, have some of their own
    or are too large),
    products are in bfloat16, and everything between them in float32.

    Args:
        backbone: `AlbertBackbone` of dtype float32. Its weights are read now.
        precision: str. One of `PRECISIONS`.
        max_rank: int. 4 for runtimes whose tensors have at most four axes; else 5,
            which needs one transposition instead of three.
        is_live: bool. Whether the weights may change: every call then reads them, with
            the same results. Only in float32.

    Call arguments:
        As for `AlbertBackbone`. Inputs that no exported model needs (training, packed
        rows, attentions) are left to the backbone and logged.

    Returns:
        As `AlbertBackbone`; float32.
    """

    def __init__(
        self,
        backbone: AlbertBackbone,
        precision: str = "float32",
        max_rank: int = 5,
        is_live: bool = False,
    ):
        self._backbone = backbone
        self._is_live = is_live
        self._max_rank = max_rank
        self._config, self._table = backbone.config, backbone.config.layer_table()
        self._dtype = tf.as_dtype(precision)
        self._activation = _ACTIVATIONS[self._config.hidden_act]
        encoder = backbone.encoder
        self._projection = None
        if encoder.embedding_projection is not None:
            self._projection = self._dense(encoder.embedding_projection)
        self._qkv = [self._joined(layer.dense) for layer in encoder.attentions]
        self._now, self._own = self._qkv, []
        self._outputs = [
            self._dense(layer.dense["output"]) for layer in encoder.attentions
        ]
        self._inner = [self._dense(layer.intermediate) for layer in encoder.ffns]
        self._outer = [self._dense(layer.output_dense) for layer in encoder.ffns]
        self._packed = {}
        if self._dtype == tf.bfloat16:
            self._packed = packed_blocks.pack(backbone, self._activation)
        self.left_to_keras: set[str] = set()

    def __call__(
        self,
        inputs,
        training=False,
        seeds=None,
        output_hidden_states=False,
        output_attentions=False,
        pooled_only=False,
        before_pooler=None,
    ):
        inputs = as_inputs(inputs)
        options = {"training": training, "output_attentions": output_attentions}
        unusual = {name for name, is_set in options.items() if is_set}
        others = (features.PACK_IDS, features.CLS_POSITIONS)
        unusual |= {name for name in others if name in inputs}
        if pooled_only and features.PLACES in inputs:
            unusual.add(features.PLACES)
        if pooled_only and output_hidden_states:
            unusual.add("output_hidden_states")
        options["output_hidden_states"] = output_hidden_states
        if unusual:
            logging.warning(
                "%s: computed by Keras's layers, which are slower", sorted(unusual)
            )
            self.left_to_keras |= unusual
            options |= {"seeds": seeds, "pooled_only": pooled_only}
            options["before_pooler"] = before_pooler
            return type(self._backbone).call(self._backbone, inputs, **options)
        if pooled_only and self._backbone.pooler is None:
            raise UsageError("pooled_only: needs a model with add_pooler=True")
        return self._forward(inputs, pooled_only, output_hidden_states, before_pooler)

    def _forward(self, inputs, pooled_only, with_states, before_pooler) -> dict:
        backbone, D = self._backbone, self._config.hidden_size
        embedded, x, bias = self.start(inputs)
        B, T = tf.unstack(tf.shape(embedded)[:2])
        states = [x]
        rows = self._table[:-1] if pooled_only else self._table
        for _, equal in itertools.groupby(range(len(rows)), rows.__getitem__):
            numbers = list(equal)
            for part in [[n] for n in numbers] if with_states else [numbers]:
                x = self._repeat(x, part, bias, (B, T))
                states.append(x)
        if pooled_only:
            # Other tokens of the last block are not read.
            x = self.block(x, len(rows), bias, (B, T), only_first=True)
            x = x if before_pooler is None else before_pooler(x)
            return {"pooled_output": backbone.pooler(x)}
        sequence = tf.reshape(x, [B, T, D])
        outputs = {"sequence_output": sequence}
        if backbone.pooler is not None:
            outputs["pooled_output"] = backbone.pooler(sequence[:, 0])
        if with_states:
            outputs["embedding_output"] = embedded
            states = [tf.reshape(state, [B, T, D]) for state in states]
            outputs["hidden_states"] = tuple(states)
        return outputs

    def start(self, inputs) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns the embeddings `[B, T, E]`, the states `[M, D]` and the bias."""
        backbone = self._backbone
        # Read once for all layers that share them.
        self._now = [_read(weights) for weights in self._qkv]
        self._own = [layer.read() for layer in backbone.encoder.depth_weights]
        embedded = backbone.embeddings(
            inputs[features.TOKEN_IDS],
            segment_ids=inputs.get(features.SEGMENT_IDS),
            position_ids=inputs.get(features.POSITION_IDS),
        )
        bias = self._bias(inputs)
        x = tf.reshape(embedded, [-1, embedded.shape[-1]])
        if self._projection is not None:
            x = self._linear(x, self._projection)
        return embedded, x, bias

    def _bias(self, inputs) -> tf.Tensor | None:
        """Returns the bias of the scores, `[B, 1, 1, T]`."""
        mask = self._backbone.mask_of(inputs)
        if mask is None:
            return None
        hidden = tf.cast(tf.equal(mask, 0), tf.float32)
        # LiteRT cannot convert indexing.
        return tf.expand_dims(tf.expand_dims(hidden * MASKED_SCORE, 1), 1)

    def _repeat(self, x, numbers: list[int], bias, shape) -> tf.Tensor:
        """Returns the states `[M, D]` after some layers of one row."""
        row = self._table[numbers[0]]
        # A single layer is not worth a copy of its weights.
        if len(numbers) > 1 and row in self._packed:
            return self._packed[row](x, len(numbers), bias, shape)
        for number in numbers:
            x = self.block(x, number, bias, shape, only_first=False)
        return x

    def block(self, x, number: int, bias, shape, only_first: bool) -> tf.Tensor:
        """Returns the states `[M, D]` after a block, or `[B, D]` of the first tokens.

        The bias comes from `start`; `shape` is `(B, T)`.
        """
        encoder, D = self._backbone.encoder, self._config.hidden_size
        row, own = self._table[number], self._own[number] if self._own else {}
        x = x + own["input"] if "input" in own else x
        context = self._attend(
            x, self._now[row.attention], own, bias, shape, only_first
        )
        if only_first:
            x = tf.reshape(x, [*shape, D])[:, 0]
        update = self._linear(context, self._outputs[row.attention])
        update = self._add_deltas(update, context, own, "attention_output")
        x = _normalize(
            x + update, encoder.attention_layer_norms[row.attention_layer_norm]
        )
        inner = _read(self._inner[row.ffn])
        update = tf.matmul(tf.cast(x, self._dtype), inner.kernel)
        update = tf.nn.bias_add(update, inner.bias)
        update = self._add_deltas(update, x, own, "ffn_intermediate")
        inner = self._activation(update)
        update = self._linear(inner, self._outer[row.ffn])
        update = self._add_deltas(update, inner, own, "ffn_output")
        return _normalize(x + update, encoder.ffn_layer_norms[row.ffn_layer_norm])

    def _add_deltas(self, y, x, own, *names) -> tf.Tensor:
        """Adds a layer's own deltas in float32, like `gradients.add_deltas`."""
        if not any(name in own for name in names):
            return y
        scale, parts = 1.0 / math.sqrt(self._config.head_size), []
        x = tf.cast(x, tf.float32)
        for name in names:
            if name not in own:
                parts.append(tf.zeros_like(x))
                continue
            a, b, bias = own[name]
            delta = tf.nn.bias_add(tf.matmul(tf.matmul(x, a), b), bias)
            parts.append(delta * scale if name == "query" else delta)
        delta = tf.concat(parts, -1) if parts[1:] else parts[0]
        return y + tf.cast(delta, y.dtype)

    def _attend(self, x, qkv: _Linear, own, bias, shape, only_first) -> tf.Tensor:
        """Returns the contexts `[M, D]`, or `[B, D]` of the first tokens."""
        N, H = self._config.num_attention_heads, self._config.head_size
        D, names = self._config.hidden_size, ("query", "key", "value")
        if self._max_rank < 5:
            joined = self._add_deltas(self._linear(x, qkv), x, own, *names)
            parts = tf.split(joined, 3, axis=-1)
            q, k, v = (
                tf.transpose(tf.reshape(part, [*shape, N, H]), [0, 2, 1, 3])
                for part in parts
            )
        else:
            if self._dtype == tf.float32:
                joined = self._add_deltas(self._linear(x, qkv), x, own, *names)
                joined = tf.reshape(joined, [*shape, 3, N, H])
            else:
                # Not fused as in `_linear`, because of the reshape in between.
                joined = tf.matmul(tf.cast(x, self._dtype), qkv.kernel)
                joined = self._add_deltas(joined, x, own, *names)
                joined = tf.reshape(joined, [*shape, 3, N, H])
                joined += tf.reshape(qkv.bias, [3, N, H])
            q, k, v = tf.unstack(tf.transpose(joined, [2, 0, 3, 1, 4]), 3)
        q = q[:, :, :1] if only_first else q
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32)
        scores = scores if bias is None else scores + bias
        probs = tf.cast(tf.nn.softmax(scores), self._dtype)
        context = tf.transpose(tf.matmul(probs, v), [0, 2, 1, 3])
        return tf.reshape(context, [-1, D])

    def _linear(self, x, weights: _Linear) -> tf.Tensor:
        """Computes `x W + b` in float32, from a product in the dtype."""
        weights = _read(weights)
        y = tf.matmul(tf.cast(x, self._dtype), weights.kernel)
        if self._dtype == tf.float32:
            return tf.nn.bias_add(y, weights.bias)
        # With variables, oneDNN's fused product in bfloat16 does not use the matrix
        # units (AMX), and loses more than it gains, except for the activation.
        return tf.cast(y, tf.float32) + tf.cast(weights.bias, tf.float32)

    def _dense(self, layer: keras.layers.Dense) -> _Weights:
        kernel, bias = layer.kernel, layer.bias
        # With LoRA, the kernel is not a variable, but a sum.
        if self._dtype == tf.float32 and isinstance(kernel, keras.Variable):
            # Do not copy: the file would hold both if anything else reads the weights.
            return _Linear(kernel.value, bias.value)
        if self._is_live:
            return lambda: _Linear(*map(tf.convert_to_tensor, (layer.kernel, bias)))
        return self._constants(_numpy(kernel), _numpy(bias))

    def _joined(self, dense: dict[str, keras.layers.Dense]) -> _Weights:
        """Returns query, key and value as one, with the queries scaled."""
        layers = [dense[name] for name in ("query", "key", "value")]
        scale = np.float32(1.0 / math.sqrt(self._config.head_size))

        def join(read: Callable, concat: Callable) -> _Linear:
            kernels = [read(layer.kernel) for layer in layers]
            biases = [read(layer.bias) for layer in layers]
            kernel = concat([kernels[0] * scale, *kernels[1:]], axis=1)
            return _Linear(kernel, concat([biases[0] * scale, *biases[1:]], axis=0))

        if self._is_live:
            return lambda: join(tf.convert_to_tensor, tf.concat)
        return self._constants(*join(_numpy, np.concatenate))

    def _constants(self, kernel: np.ndarray, bias: np.ndarray) -> _Linear:
        # Variables: constants were not faster in float32, and without a loop each layer
        # of a shared block packs its own copy of them.
        pair = (tf.cast(value, self._dtype) for value in (kernel, bias))
        return _Linear(*(tf.Variable(value, trainable=False) for value in pair))


def _read(weights: _Weights) -> _Linear:
    return weights if isinstance(weights, _Linear) else weights()


def _normalize(x: tf.Tensor, layer) -> tf.Tensor:
    """Computes layer normalization; without a gradient, so fewer operations."""
    centered = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)
    normal = centered * tf.math.rsqrt(variance + layer.epsilon)
    return normal * layer.gamma.value + layer.beta.value


def choose(
    model: keras.Model, precision: str, max_rank: int = 5, is_live: bool = False
) -> FastForward | None:
    """Returns the forward of a model's encoder, or None if Keras's layers compute it.

    Raises `UsageError` if the precision is unknown or needs an unavailable forward.
    """
    need = f"precision: must be one of {', '.join(PRECISIONS)}"
    require(precision in PRECISIONS, need, precision)
    backbone = _backbone_of(model)
    reason = _reason_against(backbone)
    if reason is None:
        return FastForward(backbone, precision, max_rank, is_live)
    if precision != "float32":
        raise UsageError(f"precision: {precision} is not available: {reason}")
    logging.warning("computed by Keras's layers, which are slower: %s", reason)
    return None


def describe(forward: FastForward | None) -> str:
    """Names the computation of the signatures traced so far, for the manifest."""
    if forward is None:
        return "keras"
    return "fast and keras" if forward.left_to_keras else "fast"


@contextlib.contextmanager
def replacing(model: keras.Model, forward: FastForward | None) -> Iterator[None]:
    """Lets a forward replace the encoder while a model's signatures are traced.

    Every head calls its backbone, so signatures need not know about the forward.
    """
    if forward is None:
        yield
        return
    backbone = _backbone_of(model)
    vars(backbone)["call"] = forward
    try:
        yield
    finally:
        del vars(backbone)["call"]


def _backbone_of(model: keras.Model) -> keras.Model:
    return getattr(model, "backbone", model)


def _reason_against(backbone: keras.Model) -> str | None:
    if keras.backend.backend() != "tensorflow":
        return f"Keras's backend is {keras.backend.backend()}"
    if type(backbone) is not AlbertBackbone:
        return f"{type(backbone).__name__} may compute something else"
    if backbone.dtype_policy.name != "float32":
        return f"the encoder's dtype is {backbone.dtype_policy.name}"
    if backbone.config.hidden_act not in _ACTIVATIONS:
        return f"hidden_act is {backbone.config.hidden_act}"
    return None


def choose_elastic(
    model: keras.Model, forward: FastForward | None, exit: str | None
) -> ElasticClassifier | None:
    """Returns a classifier that answers with fewer layers, or None without exits.

    Without a forward, Keras's layers compute the encoder. Raises `UsageError` if the
    model cannot follow the rule.
    """
    has_exits = isinstance(model, AlbertTextClassifier) and model.num_exits
    if not has_exits and not exit:
        return None
    start = None
    if has_exits and forward is not None:
        start = _start_of(forward, model.config.hidden_size)
    return ElasticClassifier(model, exit or None, start)


def _start_of(forward: FastForward, D: int) -> Start:
    def start(inputs):
        embedded, x, bias = forward.start(inputs)
        x = tf.reshape(x, [*tf.unstack(tf.shape(embedded)[:2]), D])

        def apply(number, x, bias, first_only):
            shape = tf.unstack(tf.shape(x)[:2])
            flat = tf.reshape(x, [-1, D])
            flat = forward.block(flat, number, bias, shape, first_only)
            return flat if first_only else tf.reshape(flat, [*shape, D])

        return x, bias, apply

    return start
