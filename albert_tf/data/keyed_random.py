"""A small random generator that starts from a key in half a microsecond.

SplitMix64 (Steele, Lea, Flood 2014). The numbers depend on the key alone, so they are
the same on every machine and with every version of Python and NumPy.
"""

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

# What a key is for; the first part after the seed.
DOCUMENT, LABELS, SPLIT, ORDER = range(1, 5)
EXAMPLE = 6  # 5 would draw other masks from the same seed


def mix(value: int) -> int:
    """Spreads 64 bits over 64 bits, one to one."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


class KeyedRandom:
    """Draws numbers that are a function of a key and of how many were drawn.

    Args:
        *key: ints, such as seed, purpose and document number.
    """

    __slots__ = ("_state",)

    def __init__(self, *key: int):
        state = 0
        for part in key:
            state = mix((state + part + 1) * _GOLDEN & _WORD)
        self._state = state

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + _GOLDEN) & _WORD
        return mix(self._state)

    def random(self) -> float:
        """A float in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + (self.bits() * (high - low + 1) >> 64)

    def heads(self, count: int) -> int:
        """How many of `count` fair coins show heads."""
        total = 0
        while count > 0:
            used = min(count, 64)
            total += (self.bits() >> (64 - used)).bit_count()
            count -= used
        return total
