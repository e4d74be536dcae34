"""Operations and small layers: activations, products, norms, dropout, initial values.

Their gradients consist of few operations and, where a training step asks for it, are
compiled into fewer loops.

Legend: `B` batch, `T` sequence, `P` positions, `D` hidden, `I` inputs, `O` outputs.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig

_COMPILE = contextvars.ContextVar("albert_tf_fusion", default=None)


@contextlib.contextmanager
def within(variable: contextvars.ContextVar, value: Any) -> Iterator[None]:
    """Sets a variable to another value inside a `with` statement, in this thread."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def fused_elementwise(
    compile_chain: Callable | None,
) -> contextlib.AbstractContextManager[None]:
    """Compiles the functions marked by `fusible` that are called inside.

    The choice is local to a thread: enter it in the thread that calls the layers. The
    given function compiles a function of tensors; it is called every time, so it should
    cache.
    """
    return within(_COMPILE, compile_chain)


def fusible(function: Callable) -> Callable:
    """Marks a function of tensors that is element-wise and reads no variables."""

    @functools.wraps(function)
    def call(*tensors):
        compile_chain = _COMPILE.get()
        return (compile_chain(function) if compile_chain else function)(*tensors)

    return call


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
        # the forward pass; otherwise a fused loop reads the memory only once.
        return _gelu_gradient(x, upstream)

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
            ops.sum(upstream, axis=0),
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


def gather_positions(x, positions):
    """Returns the rows of `x` `[B, T, D]` at `positions` int `[B, P]`: `[B, P, D]`."""
    # Gather whole rows of a matrix: `take_along_axis` gathers single numbers.
    B, T, D = ops.shape(x)
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.cast(positions, "int32") + first
    return ops.take(ops.reshape(x, (-1, D)), rows, axis=0)


def gather_places(x, places):
    """Returns the rows of `x` `[B, T, D]` at `places`: `[*places.shape, D]`.

    The places, of any shape, are indices of the rows of `[B * T, D]`.
    """
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), places, axis=0)


class MaskedSpans(NamedTuple):
    """The span that each masked token belongs to, all int32 `[B, P]`.

    Attributes:
        before: The position before the span; -1 if it starts the row.
        after: The position after the span; T if it ends the row.
        places: The index of the token within its span.
    """

    before: Any
    after: Any
    places: Any


def masked_spans(positions, weights) -> MaskedSpans:
    """Returns the runs of neighbouring positions `[B, P]`, ascending within each row.

    Only entries with weights above 0 are used; results of others are meaningless.
    """
    positions = ops.cast(positions, "int32")
    entries = ops.arange(ops.shape(positions)[1], dtype="int32")
    # Within a run, position and index grow together. P is small enough to compare
    # all pairs, which needs no loop over the entries.
    runs = ops.where(ops.cast(weights, "float32") > 0, positions - entries, -1)
    same = ops.equal(ops.expand_dims(runs, 2), ops.expand_dims(runs, 1))
    earlier = entries[None, :] < entries[:, None]
    places = ops.sum(ops.cast(ops.logical_and(same, earlier), "int32"), -1)
    lengths = ops.sum(ops.cast(same, "int32"), -1)
    starts = positions - places
    return MaskedSpans(starts - 1, starts + lengths, places)


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
        self.built = True

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
        x = ops.cast(x, dtype)
        centered = x - ops.mean(x, axis=-1, keepdims=True)
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


class StepSeeds(keras.random.SeedGenerator):
    """Hands out the dropout seeds of one training step, without any state.

    Keras keeps a counter in a variable, which no checkpoint format stores and which
    gives every replica of a `tf.distribute` strategy the same masks. Here mask number
    `i` of a step depends only on `(seed, step, i)`, so a resumed run continues with the
    same masks as an uninterrupted one, and a replica gets its own masks by folding its
    number into `seed`. (With `jit_compile=True` TensorFlow uses another random
    algorithm: its masks differ, but are reproducible, too.)

    Args:
        seed: int32 scalar. Seed of the run, different for every replica.
        step: int32 scalar. Index of the micro-step.
    """

    _initial_seed = 0  # else Keras's dropout would read PyTorch's own generator

    def __init__(self, seed, step):
        # super().__init__() is not called: it would create the variable avoided here.
        self._seed = ops.cast(seed, "uint32")
        self._step = ops.cast(step, "uint32")
        self._taken = 0

    def next(self, ordered=True):
        """Returns the next seed, uint32 `[2]`."""
        number = ops.cast(self._next_number(), "uint32")
        return ops.stack([ops.bitwise_xor(self._seed, number), self._step])

    def take(self, count: int):
        """Returns the next seeds, uint32 `[count, 2]`, in a few operations."""
        numbers = [self._next_number() for _ in range(count)]
        seeds = ops.bitwise_xor(self._seed, ops.convert_to_tensor(numbers, "uint32"))
        return ops.stack([seeds, ops.broadcast_to(self._step, (count,))], axis=1)

    def _next_number(self) -> int:
        # Mixed into the seed and not into the step, so that steps have 31 bits.
        self._taken += 1
        return (self._taken - 1) * _SPREAD % 2**31


class GivenSeeds(keras.random.SeedGenerator):
    """Hands out seeds uint32 `[count, 2]` that were taken from `StepSeeds` before."""

    _initial_seed = 0  # as in `StepSeeds`

    def __init__(self, seeds):
        # No variable is created, as in `StepSeeds`.
        self._left = list(ops.unstack(seeds, axis=0))

    def next(self, ordered=True):
        """Returns the next seed, uint32 `[2]`."""
        return self._left.pop(0)


# Odd, near 2**31 / golden ratio: multiples of it, modulo 2**31, lie far apart.
_SPREAD = 1327217885


@keras.saving.register_keras_serializable("albert_tf")
class Dropout(keras.layers.Layer):
    """Dropout that uses the caller's seeds, or else Keras's.

    Args:
        rate: float in `[0, 1)`. Dropout rate.
        seed: int or None. Seed of the generator used if the caller passes no seeds.

    Call arguments:
        x: Tensor of any shape.
        training: bool.
        seeds: `StepSeeds` or None.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if rate else None
        self.built = True

    def call(self, x, training=False, seeds=None):
        if not training or not self.rate:
            return x
        # Keras draws in the input's dtype. bfloat16 has 8 bits, too few for the rate:
        # 0.1 dropped 10.14% and made the mean 0.9969.
        dtype = x.dtype
        x = ops.cast(x, keras.backend.result_type(dtype, "float32"))
        x = keras.random.dropout(x, self.rate, seed=seeds or self.seed_generator)
        return ops.cast(x, dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


_SKIP = contextvars.ContextVar("albert_tf_skip_initial_values", default=False)


def without_initial_values() -> contextlib.AbstractContextManager[None]:
    """Sets kernels and tables to zero instead of random values before loading them.

    Drawing 223 million numbers takes longer and needs more memory than reading them.
    """
    return within(_SKIP, True)


@keras.saving.register_keras_serializable("albert_tf")
class TruncatedNormal(keras.initializers.TruncatedNormal):
    """The original's initial values, or zeros inside `without_initial_values`."""

    def __call__(self, shape, dtype=None):
        if _SKIP.get():
            return ops.zeros(shape, dtype=dtype)
        return super().__call__(shape, dtype=dtype)


class Configured:
    """Common parts of layers and models: a config, and a seed for each part.

    Attributes:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values and of dropout.
    """

    seed_step = 1  # from the seed of one part to the next

    def seed_of(self, part: int) -> int | None:
        """Returns the seed of a part, or None without a seed."""
        return None if self.seed is None else self.seed + self.seed_step * part

    def initial_values(self, part: int) -> TruncatedNormal:
        """Returns the original's initializer, with the seed of a part."""
        stddev = self.config.initializer_range
        return TruncatedNormal(stddev=stddev, seed=self.seed_of(part))

    def add_dense(self, units: int, name: str, part: int = 0, **kwargs):
        """Returns a dense layer of the same dtype, unless `kwargs` sets another one."""
        values = {"dtype": self.dtype_policy}
        values["kernel_initializer"] = self.initial_values(part)
        return keras.layers.Dense(units, name=name, **{**values, **kwargs})

    def add_layer_norm(self, name: str, **kwargs) -> LayerNorm:
        """Returns a layer norm of the same dtype, unless `kwargs` sets another one."""
        kwargs = {"epsilon": self.config.layer_norm_eps, **kwargs}
        return LayerNorm(name=name, **{"dtype": self.dtype_policy, **kwargs})

    def add_dropout(self, rate: float, part: int = 0, **kwargs) -> Dropout:
        """Returns a dropout of the same dtype, unless `kwargs` sets another one."""
        return Dropout(
            rate, self.seed_of(part), **{"dtype": self.dtype_policy, **kwargs}
        )

    def compute_output_spec(self, *args, **kwargs):
        # Traces `call`. Keras would use compute_output_shape, which exists for
        # `summary()` and knows neither dtypes nor further outputs.
        return super(keras.layers.Layer, self).compute_output_spec(*args, **kwargs)


class ConfiguredLayer(Configured, keras.layers.Layer):
    """A layer built from an `AlbertConfig` and a seed."""

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed

    def get_config(self):
        config = self.config.to_dict()
        return {**super().get_config(), "config": config, "seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})
