"""Packs several short examples into one row, so that batches have little padding.

Which lengths share a row is planned once for the whole data set, by best fit from the
longest to the shortest, on the histogram of the lengths (as Krell et al.,
arXiv:2107.02027), and is the same in every epoch. Which examples of those lengths share
a row is drawn anew for each epoch. The number of rows of an epoch is therefore fixed,
every example occurs in it exactly once, and any row of any epoch can be made directly:
training resumes exactly. The price is one pass over the records to find their lengths,
and sorting their numbers at the start of each epoch.

Legend: `M` examples, `B` rows, `T` sequence, `P` predictions of a row, `K` examples of
a row, `N` examples and `R` rows of the data set.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.masking.ops import NUMPY

_FEW_EXAMPLES = 32


@dataclasses.dataclass(frozen=True)
class PackPlan:
    """The lengths that share a row.

    Attributes:
        lengths: int32 `[N]`. Lengths of the examples.
        slots: int32 `[N]`. The same lengths, row after row.
        row_starts: int64 `[R + 1]`. Index of the first slot of each row.
        max_seq_length: int. T.
        max_examples_per_row: int. K.
        max_predictions_per_row: int. P.
    """

    lengths: np.ndarray
    slots: np.ndarray
    row_starts: np.ndarray
    max_seq_length: int
    max_examples_per_row: int
    max_predictions_per_row: int

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.row_starts) - 1

    @property
    def useful_token_rate(self) -> float:
        """Returns the fraction of all positions in the rows that hold a real token."""
        positions = self.num_rows * self.max_seq_length
        return float(self.lengths.sum(dtype=np.int64)) / positions

    def assignment(self, seed: int, epoch: int) -> np.ndarray:
        """Returns the example in each slot, int64 `[N]`."""
        numbers = np.arange(len(self.lengths), dtype=np.int64)
        keys = keyed_random.row_keys(seed, np.array([epoch]), numbers, NUMPY)
        index = np.zeros((1,), np.int32)
        drawn = keyed_random.draws(keys, keyed_random.PACKING, index, NUMPY)[:, 0]
        examples = np.empty_like(numbers)
        by_length = np.argsort(self.slots, kind="stable")
        examples[by_length] = np.lexsort((drawn, self.lengths))
        return examples

    def members(
        self, rows: np.ndarray, assignments: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the examples int64 `[M]` of rows `[B]`, and the number in each row.

        `assignments` holds, for each row, the assignment of its epoch.
        """
        starts, ends = self.row_starts[rows], self.row_starts[rows + 1]
        parts = zip(starts, ends, assignments, strict=True)
        examples = [assignment[a:b] for a, b, assignment in parts]
        return np.concatenate([np.zeros(0, np.int64), *examples]), ends - starts


def make_plan(
    lengths: np.ndarray,
    config: MaskingConfig,
    max_seq_length: int,
    max_examples_per_row: int | None = None,
) -> PackPlan:
    """Plans the rows of a data set of examples with lengths in `[1, T]`.

    `max_examples_per_row` is by default the smallest of 32, 64, ... that needs at most
    0.2% more rows than no limit.
    """
    counts = np.bincount(lengths, minlength=max_seq_length + 1).tolist()
    if max_examples_per_row is None:
        max_examples_per_row = _enough_examples(counts, max_seq_length)
    groups = _best_fit(counts, max_seq_length, max_examples_per_row)
    slots = np.concatenate([np.tile(row, count) for row, count in groups])
    sizes = np.concatenate([np.full(count, len(row)) for row, count in groups])
    budget = functools.cache(config.num_to_predict)
    return PackPlan(
        lengths=lengths,
        slots=slots.astype(np.int32),
        row_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        max_seq_length=max_seq_length,
        max_examples_per_row=max_examples_per_row,
        max_predictions_per_row=max(sum(map(budget, row)) for row, _ in groups),
    )


def _enough_examples(counts: list[int], capacity: int) -> int:
    """Returns the default K of `make_plan`, which may need 0.2% more rows."""

    def num_rows(most: int) -> int:
        return sum(count for _, count in _best_fit(counts, capacity, most))

    fewest, most = num_rows(capacity), _FEW_EXAMPLES
    while most < capacity and num_rows(most) > 1.002 * fewest:
        most *= 2
    return most


def _best_fit(
    counts: list[int], capacity: int, most: int
) -> list[tuple[tuple[int, ...], int]]:
    """Returns pairs (lengths in a row, number of rows), from counts by length."""
    # Best fit decreasing, applied to all examples of a length at once.
    open_rows: list[list] = [[] for _ in range(capacity + 1)]  # by room left
    done = []

    def put(row, count, room):
        if count:
            (done if len(row) == most else open_rows[room]).append((row, count))

    for length in range(capacity, 0, -1):
        todo = counts[length]
        while todo:
            fitting = (r for r in range(length, capacity + 1) if open_rows[r])
            room = next(fitting, capacity)
            row, count = open_rows[room].pop() if open_rows[room] else ((), todo)
            # The remaining room is the best fit again, as long as another one fits.
            each = min(room // length, most - len(row))
            full = min(count, todo // each)
            put(row + (length,) * each, full, room - each * length)
            todo -= full * each
            if full < count and todo:  # fewer than `each` are left
                put(row + (length,) * todo, 1, room - todo * length)
                full, todo = full + 1, 0
            if row:
                put(row, count - full, room)
    return done + [group for rows in open_rows for group in rows]


def pack_batch(
    batch: dict[str, tf.Tensor], counts: tf.Tensor, plan: PackPlan, pad_id: int
) -> dict[str, tf.Tensor]:
    """Joins M masked examples, padded to any length, into rows of `counts` each.

    Returns:
        `token_ids`, `segment_ids`, `padding_mask`, `pack_ids` (0 = padding,
        1... = index of the example), `position_ids` (from 0 in every example) int32
        `[B, T]`;
        `mask_positions` (in the row), `mask_ids` int32 `[B, P]`,
        `mask_weights` and, if the batch has them, `sample_draws` float32 `[B, P]`;
        `cls_positions` int32 `[B, K]`, `sentence_order_weights` float32 `[B, K]` (0 =
        not an example), and `sentence_order_labels` int32 `[B, K]` if the batch has
        labels.
    """
    real = batch[features.PADDING_MASK] > 0
    lengths = tf.reduce_sum(batch[features.PADDING_MASK], axis=1)
    rows = tf.repeat(tf.range(tf.size(counts)), counts)
    first = tf.gather(tf.cumsum(tf.cast(counts, tf.int32), exclusive=True), rows)
    before = tf.cumsum(lengths, exclusive=True)
    starts = before - tf.gather(before, first)
    slots = tf.range(tf.size(rows)) - first
    join = functools.partial(_join_rows, rows, counts)

    positions = tf.range(tf.shape(real)[1]) + 0 * lengths[:, None]
    per_token = {
        features.SEGMENT_IDS: batch[features.SEGMENT_IDS],
        features.PADDING_MASK: batch[features.PADDING_MASK],
        features.PACK_IDS: slots[:, None] + 1 + 0 * positions,
        features.POSITION_IDS: positions,
    }
    packed = {k: join(v, real, plan.max_seq_length) for k, v in per_token.items()}
    tokens = batch[features.TOKEN_IDS]
    packed[features.TOKEN_IDS] = join(tokens, real, plan.max_seq_length, pad_id)

    used = batch[features.MASK_WEIGHTS] > 0
    per_prediction = {
        features.MASK_POSITIONS: batch[features.MASK_POSITIONS] + starts[:, None],
        features.MASK_IDS: batch[features.MASK_IDS],
        features.MASK_WEIGHTS: batch[features.MASK_WEIGHTS],
    }
    if features.SAMPLE_DRAWS in batch:
        per_prediction[features.SAMPLE_DRAWS] = batch[features.SAMPLE_DRAWS]
    for name, values in per_prediction.items():
        packed[name] = join(values, used, plan.max_predictions_per_row)

    per_example = {
        features.CLS_POSITIONS: starts,
        features.SENTENCE_ORDER_WEIGHTS: tf.ones_like(starts, tf.float32),
    }
    labels = features.SENTENCE_ORDER_LABELS
    if labels in batch:
        per_example[labels] = batch[labels]
    for name, values in per_example.items():
        every = tf.ones_like(values[:, None], tf.bool)
        packed[name] = join(values[:, None], every, plan.max_examples_per_row)
    return packed


def _join_rows(rows, counts, values, selected, width: int, padding: int = 0):
    """Joins the values `[M, n]` selected from each row's examples, `[B, width]`."""
    # rows: int32 [M], ascending; counts: int64 [B]; selected: bool [M, n].
    sizes = tf.math.unsorted_segment_sum(
        tf.reduce_sum(tf.cast(selected, tf.int32), axis=1), rows, tf.size(counts)
    )
    ragged = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, selected), sizes, validate=False
    )
    dense = ragged.to_tensor(default_value=padding, shape=[None, width])
    return tf.ensure_shape(dense, [counts.shape[0], width])
