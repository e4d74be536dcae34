"""How many steps to run in one call of the graph."""

# Between calls a run can be stopped; a machine that is taken away leaves 30 seconds.
_SHORT = 1.0
_LONG = 4.0


class Pace:
    """Makes the calls as long as they may be, but not longer than a few seconds.

    Args:
        fixed: bool. Whether calls have as many steps as possible, however long they
            take. Needed where several processes must make the same calls.
    """

    def __init__(self, fixed: bool = False):
        self._fixed = fixed
        self._limit = 1

    def limit(self, count: int) -> int:
        """Returns how many of the next `count` steps to run in one call."""
        return count if self._fixed else min(count, self._limit)

    def measured(self, count: int, seconds: float) -> None:
        """Takes note of how long a call of `count` steps took."""
        if seconds > _LONG:
            self._limit = max(1, count // 2)
        elif seconds < _SHORT and count == self._limit:
            self._limit *= 2
