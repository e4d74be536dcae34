"""Random numbers that are a pure function of what they are for.

SplitMix64 (Steele, Lea, Flood 2014) with its counter given instead of kept: a draw
depends on (seed, epoch, example, purpose, index) and on nothing else, so that it is
the same for any batch size, order, or number of workers, in NumPy and in TensorFlow.
`keyed_random` is the same for one number after the other.
"""

from albert_tf.data import keyed_random

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1

# What a draw is for; each has a stream of its own.
NGRAM_LENGTH, NGRAM_ORDER, ACTION, REPLACEMENT, PACKING = range(1, 6)

NUM_BITS = 31  # a draw is an int32 in [0, 2**NUM_BITS)


def row_keys(seed: int, epochs, examples, xp):
    """One key an example.

    Args:
        seed: int.
        epochs: int64 `[B]`.
        examples: int64 `[B]`, the number of the example in its data set.
        xp: `array_ops.NUMPY` or `graph_ops.TENSORFLOW`.

    Returns:
        uint64 `[B]`.
    """
    key = keyed_random.mix((seed + _GOLDEN) & _WORD)
    for part in (epochs, examples):
        key = _mix(_add(xp.array(part, "uint64"), key, xp), xp)
    return key


def draws(keys, purpose: int, index, xp):
    """Uniform integers.

    Args:
        keys: uint64 `[B]`, from `row_keys`.
        purpose: int, one of the constants above.
        index: int32 `[B, N]` or `[N]`, not negative.
        xp: the array operations.

    Returns:
        int32 `[B, N]` in `[0, 2**31)`; equal keys, purposes and indices draw alike.
    """
    stream = _mix(_add(keys, keyed_random.mix(purpose), xp), xp)[:, None]
    step = xp.array(index, "uint64") * xp.array([_GOLDEN], "uint64")
    return xp.array(xp.shift_right(_mix(stream + step, xp), 64 - NUM_BITS), "int32")


def threshold(probability: float) -> int:
    """A draw is below this with the given probability."""
    return round(probability * 2**NUM_BITS)


def _add(x, y, xp):
    """Sum modulo 2**64; y may be a Python int."""
    return x + (xp.array([y], "uint64") if isinstance(y, int) else y)


def _mix(z, xp):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ xp.shift_right(z, shift)) * xp.array([factor], "uint64")
    return z ^ xp.shift_right(z, 31)
