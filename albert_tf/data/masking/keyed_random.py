"""Draws random numbers that are a pure function of their purpose.

SplitMix64 (Steele, Lea, Flood 2014), in two forms. `KeyedRandom` is seeded by a
key in half a microsecond and draws one number after the other. `row_keys` and `draws`
compute whole arrays, with the counter as an argument: a draw depends only on (seed,
epoch, example, purpose, index), so it is the same for any batch size, order or number
of workers, in NumPy and in TensorFlow. The numbers are the same on every machine and
with every version of Python and NumPy.
"""

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

# Purpose of a key; the first part after the seed.
DOCUMENT, LABELS, SPLIT, ORDER = range(1, 5)
EXAMPLE = 6  # 5 would draw other masks from the same seed
MIXTURE, LAYERS = 7, 8
# Purpose of a draw; each has its own stream.
NGRAM_LENGTH, NGRAM_ORDER, ACTION, REPLACEMENT, PACKING, SAMPLE = range(1, 7)

NUM_BITS = 31  # a draw is an int32 in [0, 2**NUM_BITS)


def mix(value: int) -> int:
    """Spreads 64 bits over 64 bits, one to one."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


class KeyedRandom:
    """Draws numbers that depend only on a key and on the number of earlier draws.

    The key consists of ints, such as seed, purpose and document number.
    """

    __slots__ = ("_state",)

    def __init__(self, *key: int):
        state = 0
        for part in key:
            state = mix((state + part + 1) * _GOLDEN & _WORD)
        self._state = state

    def bits(self) -> int:
        """Returns 64 random bits."""
        self._state = (self._state + _GOLDEN) & _WORD
        return mix(self._state)

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """Returns an integer in [low, high], both ends included."""
        return low + (self.bits() * (high - low + 1) >> 64)

    def heads(self, count: int) -> int:
        """Returns the number of heads among `count` tosses of a fair coin."""
        total = 0
        while count > 0:
            used = min(count, 64)
            total += (self.bits() >> (64 - used)).bit_count()
            count -= used
        return total


def row_keys(seed: int, epochs, examples, xp):
    """Returns one key per example, uint64 `[B]`, by int64 epoch and index."""
    key = mix((seed + _GOLDEN) & _WORD)
    for part in (epochs, examples):
        key = _mix_array(_add(xp.array(part, "uint64"), key, xp), xp)
    return key


def draws(keys, purpose: int, index, xp):
    """Draws uniform int32 `[B, N]` in `[0, 2**31)`, by key, purpose and index.

    The purpose is one of the constants above; the index is int32 `[B, N]` or `[N]`, not
    negative.
    """
    stream = _mix_array(_add(keys, mix(purpose), xp), xp)[:, None]
    step = xp.array(index, "uint64") * xp.array([_GOLDEN], "uint64")
    return xp.array(
        xp.shift_right(_mix_array(stream + step, xp), 64 - NUM_BITS), "int32"
    )


def fractions(drawn, xp):
    """Returns draws as float32 in [0, 1): their upper 24 bits, which are exact."""
    return (
        xp.array(xp.array(drawn, "int64") // 2 ** (NUM_BITS - 24), "float32") * 2**-24
    )


def threshold(probability: float) -> int:
    """Returns the bound that a draw is below with the given probability."""
    return round(probability * 2**NUM_BITS)


def _add(x, y, xp):
    """Returns the sum modulo 2**64; y may be a Python int."""
    return x + (xp.array([y], "uint64") if isinstance(y, int) else y)


def _mix_array(z, xp):
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ xp.shift_right(z, shift)) * xp.array([factor], "uint64")
    return z ^ xp.shift_right(z, 31)
