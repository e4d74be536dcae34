"""Makes the batches of a fine-tuning task from its encoded examples.

A batch can be laid out in as few padded tokens as possible, with several of its
examples sharing a row. Sorting a data set by length saves as much padding, but decides
which examples meet in a batch; packing leaves the batch as it is, so that loss and
gradients are as with one example per row. (`data.batches.packing` plans the rows of
a whole data set instead, as pretraining needs them.)

Legend: `U` units or `N` examples of a batch, `B` rows, `T` sequence, `K` choices, `L`
words.
"""

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.errors import UsageError, require
from albert_tf.heads import HEADS, TAGS
from albert_tf.tasks.task import EncodedExamples
from albert_tf.text import inputs
from albert_tf.text.inputs import STEP, ranges, rounded_length

if TYPE_CHECKING:
    import tensorflow as tf

# The shortest row length, if only a few lengths are used.
_SHORTEST = 32
# Up to this length, a row costs little more per token than a shorter one.
_SHORT = 128
# A row of this length costs twice as much per token as a very short one, since
# attention compares all its tokens with each other.
_DOUBLE_COST = 1024

# These have a row per example; all other matrices have a row per row of tokens, whose
# number differs between batches.
_OF_EXAMPLES = (
    features.LABELS,
    features.PLACES,
    features.CHOICE_MASK,
    features.TEXT_IDS,
    features.TEACHER_LOGITS,
)


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """The form of batches, whatever their examples.

    Args:
        max_seq_length: Length that no row of an example exceeds.
        longest: Maximum length of a packed row, which the model must support.
        parts: Number of equal shares that a batch is cut into later, for devices and
            micro-batches. Each holds the same number of examples and of rows.
        packing: Whether a row may hold several examples. It never does in question
            answering, which reads every token of a row.
        fixed_length: Whether all batches have one shape, as XLA needs.
        lengths: With `fixed_length`, in ascending order: several lengths; each batch
            gets the first one that its rows fit into. Empty for `max_seq_length` alone.
        step: Lengths of rows are rounded up to a multiple of it.
        row_step: See `outputs.sorted_batches`.
    """

    head: str
    max_seq_length: int
    longest: int
    pad_id: int
    parts: int = 1
    packing: bool = False
    fixed_length: bool = False
    lengths: tuple[int, ...] = ()
    step: int = STEP
    row_step: int = 1

    @property
    def packs(self) -> bool:
        """Whether rows of this head are packed."""
        spans = HEADS[self.head].answers_spans
        return self.packing and not self.fixed_length and not spans


def halved(longest: int) -> tuple[int, ...]:
    """Returns a few lengths for rows: `longest`, its half, and so on, ascending."""
    lengths = [longest]
    while lengths[0] >= 2 * _SHORTEST:
        lengths.insert(0, -(-lengths[0] // 2))
    return tuple(lengths)


def useful_token_rate(
    encoded: EncodedExamples, shape: BatchShape, batch_size: int, seed: int
) -> float:
    """Returns the fraction of real tokens in some batches of random examples."""
    make = BatchMaker(encoded, shape)
    rng = np.random.default_rng(seed)
    masks = [
        make(rng.integers(0, len(encoded), batch_size))[features.PADDING_MASK]
        for _ in range(20)
    ]
    return sum(int(m.sum()) for m in masks) / sum(m.size for m in masks)


def p_mask(encoded: inputs.EncodedTexts, rows: np.ndarray, length: int) -> np.ndarray:
    """Returns a mask of the tokens that cannot be part of an answer, int32 `[B, T]`.

    It is 1 for the question, both `[SEP]` and padding, 0 for `[CLS]` and the text.
    `length` is `T`, at least the length of the longest of `rows`.
    """
    columns = np.arange(length)
    first = encoded.first_lengths[rows][:, None]
    last = encoded.lengths[rows][:, None] - 1
    in_text = (columns >= first) & (columns < last)
    return (~in_text & (columns > 0)).astype(np.int32)


class Layout(NamedTuple):
    """The places of the examples of a batch.

    Attributes:
        rows: int64 `[N]`. Row of each example.
        starts: int64 `[N]`. Index of its first token in that row.
        slots: int64 `[N]`. Its index among the examples of that row.
        num_rows: `B`.
        length: `T`.
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


def packed(lengths: np.ndarray, longest: int) -> Layout:
    """Returns the cheapest layout, by first fit from the longest example down.

    No row is longer than `longest`; `lengths`, int `[N]`, must hold one example or
    more.
    """
    row_lengths = _row_lengths(int(lengths.max()), int(lengths.sum()), longest)
    layouts = [_first_fit(lengths, length) for length in row_lengths]
    return min(layouts, key=_cost)


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


class BatchMaker:
    """A function from the indices of units `[U]` to their batch."""

    def __init__(self, encoded: EncodedExamples, shape: BatchShape):
        self.encoded, self.shape = encoded, shape
        self.num_choices = int(np.diff(encoded.unit_splits).max(initial=1))
        if encoded.places is not None:
            self.num_words = int(np.diff(encoded.place_splits).max())

    def __call__(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        encoded, shape, head = self.encoded, self.shape, HEADS[self.shape.head]
        counts = encoded.unit_splits[numbers + 1] - encoded.unit_splits[numbers]
        rows = ranges(encoded.unit_splits[numbers], counts)
        shares = np.repeat(np.arange(shape.parts), len(numbers) // shape.parts)
        lengths, shares = encoded.rows.lengths[rows], np.repeat(shares, counts)
        most = len(numbers) // shape.parts * self.num_choices
        layout = self._layout(lengths, shares, most)
        batch = self._tokens(rows, layout)
        if encoded.places is None:
            targets = dict(encoded.targets)
            if head.answers_spans:  # a row of them for each token
                targets.pop(features.TEACHER_LOGITS, None)
            batch |= {name: values[numbers] for name, values in targets.items()}
        if head.answers_spans:
            return batch | {features.P_MASK: p_mask(encoded.rows, rows, layout.length)}
        # Places are relative to the first row of their share.
        in_share = layout.rows % (layout.num_rows // shape.parts)
        firsts = (in_share * layout.length + layout.starts).astype(np.int32)
        if encoded.places is not None:
            return batch | self._words(rows, firsts)
        if head.has_several_rows:
            size = (counts, self.num_choices)
            places, mask = _matrix(firsts, *size), _matrix(1, *size)
            return batch | {features.PLACES: places, features.CHOICE_MASK: mask}
        return batch | {features.PLACES: firsts}

    def _layout(self, lengths: np.ndarray, shares: np.ndarray, most: int) -> Layout:
        """Returns the layout of shares, each of at most `most` rows, in order."""
        shape, length = self.shape, self.shape.max_seq_length
        parts = [lengths[shares == i] for i in range(shape.parts)]
        if shape.packs:
            layouts = [packed(part, shape.longest) for part in parts]
        else:
            longest = int(lengths.max())
            if not shape.fixed_length:
                length = rounded_length(longest, length, shape.step)
            elif shape.lengths:
                length = next(one for one in shape.lengths if one >= longest)
            layouts = [one_per_row(part, length) for part in parts]
        rows, starts, slots, counts, row_lengths = zip(*layouts, strict=True)
        count = most if shape.fixed_length else max(counts)
        return Layout(
            np.concatenate(rows) + shares * count,
            np.concatenate(starts),
            np.concatenate(slots),
            count * shape.parts,
            max(row_lengths),
        )

    def _tokens(self, rows: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
        encoded = self.encoded.rows
        lengths = encoded.lengths[rows]
        places = ranges(layout.rows * layout.length + layout.starts, lengths)
        position = ranges(np.zeros(len(rows), np.int64), lengths)
        second = position >= np.repeat(encoded.first_lengths[rows], lengths)
        second &= encoded.has_segments
        values = {
            features.TOKEN_IDS: encoded.ids[ranges(encoded.splits[rows], lengths)],
            features.SEGMENT_IDS: second,
            features.PADDING_MASK: 1,
        }
        if self.shape.packs:
            values[features.PACK_IDS] = np.repeat(layout.slots + 1, lengths)
            values[features.POSITION_IDS] = position
        batch = {}
        for name, value in values.items():
            padding = self.shape.pad_id if name == features.TOKEN_IDS else 0
            flat = np.full(layout.num_rows * layout.length, padding, np.int32)
            flat[places] = value
            batch[name] = flat.reshape(layout.num_rows, layout.length)
        teacher = self.encoded.targets.get(features.TEACHER_LOGITS)
        if teacher is not None and HEADS[self.shape.head].answers_spans:
            flat = np.zeros((layout.num_rows * layout.length, 2), np.float32)
            flat[places] = teacher[ranges(encoded.splits[rows], lengths)]
            batch[features.TEACHER_LOGITS] = flat.reshape(-1, layout.length, 2)
        return batch

    def _words(self, rows: np.ndarray, firsts: np.ndarray) -> dict[str, np.ndarray]:
        splits = self.encoded.place_splits
        counts = splits[rows + 1] - splits[rows]
        width = self.num_words if self.shape.fixed_length else max(1, counts.max())
        words, places = ranges(splits[rows], counts), np.repeat(firsts, counts)
        places = self.encoded.places[words] + places
        batch = {features.PLACES: _matrix(places, counts, width)}
        for name, values in self.encoded.targets.items():
            padding = -1 if name == features.LABELS else 0
            batch[name] = _matrix(values[words], counts, width, padding)
        return batch


def _matrix(
    values: np.ndarray | int, counts: np.ndarray, width: int, padding: int = 0
) -> np.ndarray:
    """Returns the values as rows of `counts` values each, followed by padding."""
    present, values = np.arange(width) < counts[:, None], np.asarray(values)
    kind = np.float32 if values.dtype.kind == "f" else np.int32
    matrix = np.full((*present.shape, *values.shape[1:]), padding, kind)
    matrix[present] = values
    return matrix


def make_training_dataset(
    encoded: EncodedExamples,
    shape: BatchShape,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    num_pipelines: int = 1,
    pipeline: int = 0,
) -> "tf.data.Dataset":
    """Returns an endless data set of training batches of `batch_size` units.

    Every epoch is a permutation that depends only on the seed and the epoch. A batch
    may hold the end of one epoch and the start of the next, so all batches are full.
    `shape.parts` counts the shares of this pipeline alone. Batches have `token_ids`,
    `segment_ids`, `padding_mask` int32 `[B, T]`, the targets, `places` (in the rows of
    a share) except for question answering, which has `p_mask`, and for packed rows
    `pack_ids` and `position_ids`.
    """
    import tensorflow as tf

    from albert_tf.data.batches.graph_ops import python_op, shuffled

    check(encoded, shape, batch_size, num_pipelines)
    make = BatchMaker(encoded, shape)
    example = make(np.zeros(batch_size // num_pipelines, np.int64))
    names = list(example)
    count, share = len(encoded), batch_size // num_pipelines
    stop = np.iinfo(np.int64).max
    numbers = tf.data.Dataset.range(start_step * batch_size, stop)
    numbers = numbers.batch(batch_size, drop_remainder=True)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, only slow
    def batch(rows):
        rows = shuffled(rows, count, seed)[0]
        rows = rows[pipeline * share : (pipeline + 1) * share]
        kinds = [value.dtype for value in example.values()]
        values = python_op(lambda n: list(make(n).values()), [rows], kinds)
        for name, value in zip(names, values, strict=True):
            value.set_shape(_static_shape(example[name], name, shape))
        return dict(zip(names, values, strict=True))

    options = tf.data.Options()
    options.deterministic = True
    dataset = numbers.map(batch, num_parallel_calls=2, deterministic=True)
    return dataset.prefetch(2).with_options(options)


def _static_shape(value: np.ndarray, name: str, shape: BatchShape) -> list[int | None]:
    if value.ndim == 3 and (shape.lengths or not shape.fixed_length):
        return [len(value), None, value.shape[2]]
    if value.ndim == 2 and name not in _OF_EXAMPLES:
        if shape.fixed_length and not shape.lengths:
            return list(value.shape)
        return [len(value) if shape.fixed_length else None, None]
    if shape.fixed_length:
        return list(value.shape)
    is_words = HEADS[shape.head].answers == TAGS and value.ndim == 2
    return [len(value), None] if is_words else list(value.shape)


def check(
    encoded: EncodedExamples, shape: BatchShape, batch_size: int, num_pipelines: int = 1
) -> None:
    """Raises a `UsageError` if batches cannot be made; see `make_training_dataset`."""
    require(len(encoded), "training data: expected at least one example, received none")
    shares = shape.parts * num_pipelines
    if batch_size < 1 or batch_size % shares:
        below, above = max(1, batch_size // shares), max(1, -(-batch_size // shares))
        sizes = " or ".join(str(n * shares) for n in sorted({below, above}))
        raise UsageError(
            f"--train_batch_size must be a positive multiple of {shares} (devices x "
            f"--gradient_accumulation_steps), such as {sizes}, received {batch_size}"
        )
    longest = int(encoded.rows.lengths.max())
    rule = f"max_seq_length must be at least {longest}, the length of the longest row"
    require(longest <= shape.max_seq_length, rule, shape.max_seq_length)
