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
    order = np.argsort(-lengths, kind="stable").tolist()
    sizes = lengths.tolist()
    layouts = [
        _first_fit(order, sizes, length)
        for length in _row_lengths(sizes[order[0]], sum(sizes), longest)
    ]
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


def _first_fit(order: list[int], sizes: list[int], length: int) -> Layout:
    rows, starts, slots = (np.zeros(len(sizes), np.int64) for _ in range(3))
    used: list[int] = []
    counts: list[int] = []
    for i in order:
        fitting = (r for r, tokens in enumerate(used) if tokens + sizes[i] <= length)
        row = next(fitting, len(used))
        if row == len(used):
            used.append(0)
            counts.append(0)
        rows[i], starts[i], slots[i] = row, used[row], counts[row]
        used[row] += sizes[i]
        counts[row] += 1
    return Layout(rows, starts, slots, len(used), length)
