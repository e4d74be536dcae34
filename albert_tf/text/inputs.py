"""Texts and pairs of texts as model inputs: `[CLS] A [SEP] B [SEP]`.

Legend: `B` batch, `T` sequence.

The NumPy path, for data sets and Python users. `packing_graph` does the same in
TensorFlow, for what is exported.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.text.tokenizer import Tokenizer

# Lengths that rows are padded to, so that few shapes occur and little is padding.
LENGTH_BUCKETS = (16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class PackedTexts:
    """Unpadded rows, one after another.

    Attributes:
        ids: int32, the rows' tokens.
        splits: int64 `[B + 1]`: row `i` is `ids[splits[i]:splits[i + 1]]`.
        first_lengths: int32 `[B]`, tokens of segment 0, `[CLS]` and `[SEP]` included.
        num_truncated: int. Rows that lost tokens.
    """

    ids: np.ndarray
    splits: np.ndarray
    first_lengths: np.ndarray
    num_truncated: int = 0

    def __len__(self) -> int:
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[B]`, tokens of each row."""
        return np.diff(self.splits)


def truncated_lengths(first, second, budget: int):
    """How many tokens of A and of B are kept.

    One token at a time is taken from the end of the longer text, from B on a tie, until
    both fit together (the original's `_truncate_seq_pair`). Hugging Face takes from A
    on a tie.

    Args:
        first, second: int `[B]`, tokens of A and of B.
        budget: int. Tokens there is room for.

    Returns:
        Two int `[B]`.
    """
    half = budget // 2
    return (
        np.minimum(first, np.maximum(budget - second, budget - half)),
        np.minimum(second, np.maximum(budget - first, half)),
    )


def pack_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None = None,
    *,
    max_seq_length: int,
) -> PackedTexts:
    """Tokenizes, truncates and adds the special tokens.

    Args:
        tokenizer: `Tokenizer`.
        texts: `B` strings.
        text_pairs: `B` strings for the second segment, or None.
        max_seq_length: int. Longest row, special tokens included.

    Raises:
        UsageError: If there is no room for text, or the two lists differ in length.
    """
    check_max_seq_length(max_seq_length, pairs=text_pairs is not None)
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise UsageError(
            f"text_pairs: expected as many as texts, {len(texts)}, received "
            f"{len(text_pairs)}"
        )
    parts = [tokenizer.encode_batch_flat(texts)]
    if text_pairs is not None:
        parts.append(tokenizer.encode_batch_flat(text_pairs))
    full = [np.diff(splits) for _, splits in parts]
    if text_pairs is None:
        kept = [np.minimum(full[0], max_seq_length - 2)]
    else:
        kept = truncated_lengths(*full, max_seq_length - 3)
    lengths = 1 + sum(count + 1 for count in kept)
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.full(splits[-1], tokenizer.sep_id, np.int32)
    ids[splits[:-1]] = tokenizer.cls_id
    start = splits[:-1] + 1
    for (part_ids, part_splits), count in zip(parts, kept, strict=True):
        ids[_ranges(start, count)] = part_ids[_ranges(part_splits[:-1], count)]
        start = start + count + 1
    lost = sum(a > b for a, b in zip(full, kept, strict=True))
    return PackedTexts(
        ids, splits, (kept[0] + 2).astype(np.int32), int(np.count_nonzero(lost))
    )


def padded_inputs(
    packed: PackedTexts, rows: np.ndarray, length: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Some rows as a batch.

    Args:
        packed: From `pack_texts`.
        rows: int `[B]`, which rows.
        length: int. `T`; at least the longest row's.
        pad_id: int.

    Returns:
        dict of int32 `[B, T]`: `token_ids`, `segment_ids`, `padding_mask`.
    """
    counts = packed.lengths[rows]
    columns = np.arange(length)
    real = columns < counts[:, None]
    token_ids = np.full(real.shape, pad_id, np.int32)
    token_ids[real] = packed.ids[_ranges(packed.splits[rows], counts)]
    second = columns >= packed.first_lengths[rows][:, None]
    return {
        features.TOKEN_IDS: token_ids,
        features.SEGMENT_IDS: (real & second).astype(np.int32),
        features.PADDING_MASK: real.astype(np.int32),
    }


def length_buckets(max_seq_length: int) -> tuple[int, ...]:
    """Lengths that rows may be padded to, ascending; the last is the longest."""
    shorter = [length for length in LENGTH_BUCKETS if length < max_seq_length]
    return (*shorter, max_seq_length)


def bucket_length(longest: int, max_seq_length: int) -> int:
    """The smallest bucket that holds `longest` tokens."""
    return min(b for b in length_buckets(max_seq_length) if b >= longest)


def check_max_seq_length(value: int, *, pairs: bool, longest: int | None = None):
    """Raises a UsageError if there is no room for text or too few positions.

    Args:
        value: int. `max_seq_length`.
        pairs: bool. Whether there are two segments.
        longest: int or None. The model's `max_position_embeddings`.
    """
    least = 5 if pairs else 3
    if value < least:
        raise UsageError(f"max_seq_length must be at least {least}, received {value}")
    if longest is not None and value > longest:
        raise UsageError(
            f"max_seq_length must be at most max_position_embeddings={longest}, "
            f"received {value}"
        )


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`starts[i], starts[i] + 1, ...`, `counts[i]` of them for each i, in one array."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
