"""Packs the examples of one batch into as few padded tokens as possible.

Sorting a data set by length saves as much padding, but decides which examples meet in
a batch. Packing leaves the batch as it is: loss and gradients are those of one example
per row.

Legend: `N` examples, `B` rows, `T` sequence.
"""

import dataclasses

import numpy as np

# Lengths of rows are multiples of this: few different shapes.
STEP = 16
# Up to here a row costs little more per token than a shorter one.
_SHORT = 128
# A row of this length costs twice as much per token as a very short one, since
# attention compares all its tokens with each other.
_DOUBLE_COST = 1024


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the examples of a batch stand.

    Attributes:
        rows: int64 `[N]`. Row of each example.
        starts: int64 `[N]`. Its first token in that row.
        slots: int64 `[N]`. Its number in that row, from 0.
        num_rows: int. `B`.
        length: int. `T`.
    """

    rows: np.ndarray
    starts: np.ndarray
    slots: np.ndarray
    num_rows: int
    length: int


def one_per_row(lengths: np.ndarray, length: int) -> Layout:
    """Returns the layout with one example in each row of `length` tokens."""
    zeros = np.zeros(len(lengths), np.int64)
    return Layout(np.arange(len(lengths)), zeros, zeros, len(lengths), length)


def pack(lengths: np.ndarray, longest: int) -> Layout:
    """Returns the layout that costs least, by first fit from the longest down.

    Args:
        lengths: int `[N]`. Numbers of tokens, at least one example.
        longest: int. Maximum length of a row, at least that of the longest example.
    """
    row_lengths = _row_lengths(int(lengths.max()), int(lengths.sum()), longest)
    layouts = [_first_fit(lengths, length) for length in row_lengths]
    return min(layouts, key=_cost)


def rounded_length(length: int, longest: int, step: int = STEP) -> int:
    """Returns a length rounded up to a multiple of `step`, at most `longest`."""
    return min(-(-length // step) * step, longest)


def _cost(layout: Layout) -> float:
    tokens = layout.num_rows * layout.length
    return tokens * (1 + layout.length / _DOUBLE_COST)


def _row_lengths(longest_example: int, total: int, longest: int) -> list[int]:
    least = rounded_length(longest_example, longest)
    most = min(max(2 * least, _SHORT), rounded_length(total, longest))
    return [least, *range(least + STEP, most + 1, STEP)]


def _first_fit(lengths: np.ndarray, length: int) -> Layout:
    """Puts each example, from the longest down, into the first row with room for it."""
    order = np.argsort(-lengths, kind="stable")
    rows, starts, slots = (np.zeros(len(lengths), np.int64) for _ in range(3))
    used, counts = np.zeros((2, len(lengths)), np.int64)
    num_rows = 0
    sizes, numbers = np.unique(lengths, return_counts=True)
    # Examples of one length fill the first row with room for them, then the next one.
    for size, number in zip(sizes[::-1].tolist(), numbers[::-1].tolist(), strict=True):
        some, order = order[:number], order[number:]
        room = (length - used[: num_rows + number]) // size
        ends = np.cumsum(room)
        places = np.arange(number)
        row = np.searchsorted(ends, places, side="right")
        places -= (ends - room)[row]
        rows[some] = row
        starts[some] = used[row] + places * size
        slots[some] = counts[row] + places
        added = np.bincount(row, minlength=len(used))
        used += added * size
        counts += added
        num_rows = max(num_rows, int(row[-1]) + 1)
    return Layout(rows, starts, slots, num_rows, length)
