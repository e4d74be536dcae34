"""Finds, with few compilations, the number of rows at once that fits and is fastest."""

from collections.abc import Callable, Sequence
from typing import Any

_MOST_COMPILED = 4  # to find the largest size that fits
_FASTER = 0.98  # share of the time below which another size is worth it


class Search:
    """Compiles a step with several ascending sizes, each at most once.

    Args:
        compile_rows: callable. Compiles a size to an object whose `fits` says whether a
            device has the memory, `temporaries` are the bytes that grow with the size,
            and, if it fits, `seconds` is the time of the whole step and `least` a lower
            bound for every size.
        guess: callable. Estimates the bytes of a size, of which `room` are available.
    """

    def __init__(
        self,
        compile_rows: Callable[[int], Any],
        sizes: Sequence[int],
        guess: Callable[[int], float],
        room: float,
    ):
        self._compile_rows = compile_rows
        self.sizes = sizes
        self._guess = guess
        self._room = room
        self.found: dict[int, Any] = {}

    def at(self, index: int) -> Any:
        """Returns the compiled object of a size, by its index."""
        if index not in self.found:
            self.found[index] = self._compile_rows(self.sizes[index])
        return self.found[index]

    def expects(self, index: int) -> bool:
        """Predicts from earlier compilations whether a size fits."""
        if index in self.found:
            return self.found[index].fits
        guess = self._guess(self.sizes[index])
        points = [
            (self._guess(self.sizes[i]), one.temporaries)
            for i, one in list(self.found.items())[-2:]
        ]
        if len(points) == 2:
            (a, low), (b, high) = points
            return high + (guess - b) * (high - low) / (b - a) <= self._room
        factor = points[0][1] / points[0][0] if points else 1.0
        return factor * guess <= self._room

    def most(self) -> int | None:
        """Returns the largest size that probably fits."""
        fit = filter(self.expects, range(len(self.sizes)))
        return max((self.sizes[index] for index in fit), default=None)

    def largest(self, below: int) -> int | None:
        """Returns the index of the largest size below one that fits, or None."""
        fits, compiled = -1, 0
        while compiled < _MOST_COMPILED and fits + 1 < below:
            left = range(fits + 1, below)
            index = max(filter(self.expects, left), default=None)
            if index is None:
                if fits >= 0:
                    break
                index = left[0]
            compiled += 1
            if self.at(index).fits:
                fits = index
            else:
                below = index
        return fits if fits >= 0 else None

    def fastest(self, start: int) -> None:
        """Moves from a size to smaller or larger ones while steps get faster."""
        index: int | None = start
        if not self.at(start).fits:
            index = self.largest(start)
        for move in (-1, 1) if index is not None else ():
            first = index
            while self._is_faster(index + move, index):
                index += move
            if index != first:
                break

    def _is_faster(self, other: int, than: int) -> bool:
        if not (0 <= other < len(self.sizes) and self.expects(other)):
            return False
        limit = _FASTER * self.at(than).seconds
        if self.at(than).least >= limit:
            return False
        one = self.at(other)
        return one.fits and one.seconds < limit


def halvings(number: int) -> list[int]:
    """Returns ascending divisors of a number, each at least twice the previous one."""
    divisors = [number]
    for divisor in range(number // 2, 0, -1):
        if number % divisor == 0 and 2 * divisor <= divisors[-1]:
            divisors.append(divisor)
    return divisors[::-1]
