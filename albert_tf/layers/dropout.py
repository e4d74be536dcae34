"""Dropout whose masks are a function of the seed and the step of a training."""

import keras
from keras import ops


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

    def again(self) -> "StepSeeds":
        """Returns the same seeds, from the first one on."""
        return StepSeeds(self._seed, self._step)

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
