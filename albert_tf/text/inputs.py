"""Turns texts and pairs of texts into model inputs: `[CLS] A [SEP] B [SEP]`.

If the second text has no tokens, the row has one text, as in the original: `[CLS] A
[SEP]`.

Legend: `B` batch, `T` sequence, `P` masks in a text.

This is the NumPy path, used by data sets and by Python callers. `inputs_graph` does the
same in TensorFlow operations, for exported models.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import MASK, Tokenizer

# Neutral sentences: the missing words depend on grammar and common knowledge.
PROMPTS = (
    "the capital of france is [MASK] .",
    "she opened the door and [MASK] into the room .",
    "water is [MASK] than ice .",
    "this function [MASK] a list of numbers .",
    "he was born in 1950 [MASK] london .",
)
# Rows are padded to a multiple of this, which bounds both the number of shapes and the
# amount of padding.
STEP = 16


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Texts as token ids with special tokens, unpadded and concatenated.

    Attributes:
        ids: int32 array. Tokens of all rows.
        splits: int64 `[B + 1]`. Row `i` is `ids[splits[i]:splits[i + 1]]`.
        first_lengths: int32 `[B]`. Number of tokens in segment 0, including `[CLS]` and
            `[SEP]`; also the index of the first token of segment 1.
        truncated: bool `[B]`. Whether each row was truncated; None if not recorded.
        has_segments: Whether segment 1 has its own segment id; see
            `Tokenizer.pair_separators`.
    """

    ids: np.ndarray
    splits: np.ndarray
    first_lengths: np.ndarray
    truncated: np.ndarray | None = None
    has_segments: bool = True

    def __len__(self) -> int:
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each row, int64 `[B]`."""
        return np.diff(self.splits)


def kept_lengths(first, second, max_seq_length: int, separators: int = 1, ops=np):
    """Returns the numbers of tokens of A and of B that a row keeps, two int `[B]`.

    Tokens are removed one at a time from the end of the longer text, from B on a tie,
    until both fit together (the original's `_truncate_seq_pair`). Hugging Face removes
    from A on a tie. A row without tokens in B has one segment. `ops` is NumPy or
    TensorFlow, matching the arrays.
    """
    budget = max_seq_length - 2 - separators
    half = budget // 2
    pair = ops.minimum(first, ops.maximum(budget - second, budget - half))
    alone = ops.minimum(first, max_seq_length - 2)
    second_kept = ops.minimum(second, ops.maximum(budget - first, half))
    return ops.where(second > 0, pair, alone), second_kept


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None = None,
    *,
    max_seq_length: int,
) -> EncodedTexts:
    """Tokenizes and truncates texts, and adds the special tokens.

    A row whose second text has no tokens has one text. Raises `UsageError` if
    `max_seq_length` leaves no room for text, or the two sequences differ in length.
    """
    separators = tokenizer.pair_separators
    is_pair = text_pairs is not None
    check_max_seq_length(max_seq_length, pairs=is_pair, separators=separators)
    nothing = np.zeros(0, np.int32), np.zeros(len(texts) + 1, np.int64)
    parts = [tokenizer.encode_batch_flat(texts), nothing]
    if text_pairs is not None:
        message = f"text_pairs: expected as many as texts, {len(texts)}"
        require(len(text_pairs) == len(texts), message, len(text_pairs))
        parts[1] = tokenizer.encode_batch_flat(text_pairs)
    first, second = (np.diff(splits) for _, splits in parts)
    lengths = kept_lengths(first, second, max_seq_length, separators)
    lost = (first > lengths[0]) | (second > lengths[1])
    counts = (lengths[0], np.where(second > 0, lengths[1], -1))
    segments = ((a, b[:-1], n) for (a, b), n in zip(parts, counts, strict=True))
    return dataclasses.replace(join_segments(tokenizer, *segments), truncated=lost)


def join_segments(tokenizer: Tokenizer, *segments: tuple) -> EncodedTexts:
    """Joins parts of tokens to rows: `[CLS]`, then each part followed by `[SEP]`.

    Between two parts there are `tokenizer.pair_separators` separators. A segment holds
    the tokens of all rows, an int32 array; and, both int `[B]`, the index of each row's
    first token and its number of tokens, -1 for a row without this part.
    """
    more = tokenizer.pair_separators - 1  # before every part but the first
    lengths = (
        1 - more + sum(counts + 1 + more * (counts >= 0) for *_, counts in segments)
    )
    splits = np.append(0, np.cumsum(lengths)).astype(np.int64)
    ids = np.full(splits[-1], tokenizer.sep_id, np.int32)
    ids[splits[:-1]] = tokenizer.cls_id
    at = splits[:-1] + 1
    for tokens, starts, counts in segments:
        some = np.maximum(counts, 0)
        ids[ranges(at, some)] = tokens[ranges(starts, some)]
        at = at + counts + 1 + more
    first = (segments[0][2] + 2 + more).astype(np.int32)
    return EncodedTexts(ids, splits, first, has_segments=not more)


def padded_inputs(
    encoded: EncodedTexts, rows: np.ndarray, length: int, pad_id: int
) -> dict[str, np.ndarray]:
    """Returns selected rows `[B]` as model inputs `[B, length]`."""
    counts = encoded.lengths[rows]
    columns = np.arange(length)
    real = columns < counts[:, None]
    token_ids = np.full(real.shape, pad_id, np.int32)
    token_ids[real] = encoded.ids[ranges(encoded.splits[rows], counts)]
    second = columns >= encoded.first_lengths[rows][:, None]
    second &= encoded.has_segments
    return {
        features.TOKEN_IDS: token_ids,
        features.SEGMENT_IDS: (real & second).astype(np.int32),
        features.PADDING_MASK: real.astype(np.int32),
    }


def encode_masked(
    tokenizer: Tokenizer, text: str | bytes, longest: int, limit: str
) -> list[int]:
    """Returns the token ids of a text with masks, special tokens included.

    `[MASK]` stands for the tokenizer's mask token, whatever its name in the vocabulary.
    The text is not truncated, because that could remove a mask, or the context that
    determines its token: a `UsageError` names the `limit` that gives `longest`.
    """
    text = to_unicode(text)
    ids = [tokenizer.cls_id, *tokenizer.encode_masked(text), tokenizer.sep_id]
    shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    require(tokenizer.mask_id in ids, f"text: expected {mask} in it, received {shown}")
    message = f"text: expected at most {longest} tokens ({limit})"
    require(len(ids) <= longest, f"{message}, received {len(ids)}: {shown}")
    return ids


def masked_inputs(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], longest: int, step: int = STEP
) -> tuple[dict[str, np.ndarray], list[list[int]]]:
    """Returns rows of `encode_masked` as a padded batch, and the positions of masks.

    The batch has int32 `[B, T]` `token_ids`, `segment_ids`, `padding_mask`, with `T` a
    multiple of `step`; and `[B, P]` `mask_positions`, padded with zeros, with `P` a
    power of two.
    """
    lengths = np.array([len(row) for row in rows])
    splits = np.append(0, np.cumsum(lengths))
    encoded = EncodedTexts(np.concatenate(rows), splits, lengths)
    every = np.arange(len(rows))
    length = rounded_length(int(lengths.max()), longest, step)
    batch = padded_inputs(encoded, every, length, tokenizer.pad_id)
    masks = [np.flatnonzero(np.equal(r, tokenizer.mask_id)).tolist() for r in rows]
    most = max(map(len, masks))
    positions = np.zeros((len(rows), 1 << (most - 1).bit_length()), np.int32)
    for row, columns in zip(positions, masks, strict=True):
        row[: len(columns)] = columns
    return {**batch, features.MASK_POSITIONS: positions}, masks


def rounded_length(length: int, longest: int, step: int = STEP) -> int:
    """Returns a length rounded up to a multiple of `step`, at most `longest`."""
    return min(-(-length // step) * step, longest)


def check_max_seq_length(
    value: int, *, pairs: bool, longest: int | None = None, separators: int = 1
):
    """Raises a `UsageError` if `max_seq_length` is too small or too large.

    `longest` is the model's `max_position_embeddings`, if known.
    """
    least = 4 + separators if pairs else 3
    require(value >= least, f"max_seq_length must be at least {least}", value)
    need = f"max_seq_length must be at most max_position_embeddings={longest}"
    require(longest is None or value <= longest, need, value)


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenates the ranges `starts[i], ..., starts[i] + counts[i] - 1`."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def read_prompts(path: str) -> list[str]:
    """Returns the texts in a file, one per line; with an empty path, the default ones.

    Raises `DataError` if the file cannot be read, or a line in it has no mask.
    """
    if not path:
        return list(PROMPTS)
    lines = files.read_lines(path)
    for number, line in enumerate(lines, 1):
        if line and MASK not in line:
            raise DataError(
                f"{path}: line {number} must contain {MASK}, received {line[:60]!r}"
            )
    if not any(lines):
        raise DataError(f"{path}: must contain a sentence with {MASK}, is empty")
    return [line for line in lines if line]
