"""Turns planned examples into serialized records, masked or not."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.data.masking import apply as masking
from albert_tf.data.masking import keyed_random, ops
from albert_tf.data.masking.config import VocabInfo
from albert_tf.data.masking.keyed_random import KeyedRandom
from albert_tf.data.records import tfrecord

_MASK_ROWS = 256  # rows masked at a time
_SAMPLE_ROWS = 16  # rows of a block that are masked only for the data card

_TOKEN_FEATURES = (features.TOKEN_IDS, features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
_MASK_FEATURES = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)


class Batch(NamedTuple):
    """Examples, one after the other in flat arrays."""

    tokens: dict[str, np.ndarray]  # int32 [sum of lengths], by batch key
    lengths: np.ndarray  # int64 [N]
    labels: np.ndarray  # int64 [N]


def assemble(ids, word_starts, plan: np.ndarray, tokenizer) -> Batch:
    """Returns [CLS] A [SEP] B [SEP], or [CLS] A [SEP], for all examples of a plan.

    ids: int `[tokens]`. The flat array that the plan points into.
    word_starts: bool `[tokens]`. Whether a token starts a word.
    plan: int `[N, 5]`. The fields of `pairs.Example`.
    """
    a_start, a_end, b_start, b_end, labels = plan.astype(np.int64).T
    a_size, b_size = a_end - a_start, b_end - b_start
    has_b = b_size > 0
    lengths = a_size + b_size + 2 + has_b
    total = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    out = np.empty(total, np.int32)
    boundary = np.ones(total, np.int32)
    segments = np.zeros(total, np.int32)
    out[starts] = tokenizer.cls_id
    out[starts + a_size + 1] = tokenizer.sep_id
    out[starts + lengths - 1] = tokenizer.sep_id
    for first, size, place in (
        (a_start, a_size, starts + 1),
        (b_start, b_size, starts + a_size + 2),
    ):
        count = np.arange(int(size.sum()))
        before = np.cumsum(size) - size
        source = count + np.repeat(first - before, size)
        target = count + np.repeat(place - before, size)
        out[target] = ids[source]
        boundary[target] = word_starts[source]
    segments[target] = 1  # B, the last iteration
    segments[(starts + lengths - 1)[has_b]] = 1
    tokens = dict(zip(_TOKEN_FEATURES, (out, segments, boundary), strict=True))
    return Batch(tokens, lengths, labels)


def serialize(batch, key, repeat, config, tokenizer, counts) -> list[bytes]:
    """Returns the serialized examples of a batch.

    Masks all of them, or only a few, for the statistics of the card.
    """
    seed = config.pairs.seed
    base = KeyedRandom(seed, keyed_random.EXAMPLE, *key).bits() >> 2
    numbers = base + np.arange(len(batch.lengths))
    keys = keyed_random.row_keys(
        seed, np.full(len(numbers), repeat), numbers, ops.NUMPY
    )
    vocab = VocabInfo.from_tokenizer(tokenizer)
    if config.masking == "static":
        payloads = [b""] * len(keys)
        # Rows of similar length are masked together, so that there is little padding.
        order = np.argsort(batch.lengths, kind="stable")
        for first in range(0, len(keys), _MASK_ROWS):
            rows = order[first : first + _MASK_ROWS]
            padded = _padded(batch, rows)
            made = _static(padded, keys[rows], config, vocab, counts)
            for row, payload in zip(rows.tolist(), made, strict=True):
                payloads[row] = payload
        return payloads
    if config.sample_masks and repeat == 0:
        rows = np.arange(min(_SAMPLE_ROWS, len(keys)))
        padded = _padded(batch, rows)
        masked = masking.mask_batch(padded, keys[rows], config.mask, vocab)
        _count_masks(padded, masked, counts)
    ones = np.ones(len(batch.lengths), np.int64)
    columns = {
        features.record_name(name): (values, batch.lengths)
        for name, values in batch.tokens.items()
    }
    if config.pairs.is_labelled:
        columns[features.NEXT_SENTENCE_LABELS] = (batch.labels, ones)
    return tfrecord.serialize_batch(columns)


def _padded(batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns some examples of a batch as int32 `[rows, longest]`, by batch key."""
    lengths = batch.lengths[rows]
    starts = np.cumsum(batch.lengths)[rows] - lengths
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]
    tokens = (starts[:, None] + columns)[real]
    padded = {features.PADDING_MASK: real.astype(np.int32)}
    for name, values in batch.tokens.items():
        padded[name] = np.zeros(real.shape, np.int32)
        padded[name][real] = values[tokens]
    padded[features.SENTENCE_ORDER_LABELS] = batch.labels[rows, None]
    return padded


def _static(padded, keys, config, vocab, counts) -> list[bytes]:
    """Returns records with the original's features of fixed length."""
    masked = masking.mask_batch(padded, keys, config.mask, vocab)
    _count_masks(padded, masked, counts)
    real = padded[features.PADDING_MASK] > 0
    used = masked[features.MASK_WEIGHTS] > 0
    everything = np.ones((len(keys), 1), bool)
    source = padded | {features.TOKEN_IDS: masked[features.TOKEN_IDS]}
    columns, widths, size = {}, {}, config.pairs.max_seq_length
    for names, values, selected, width in (
        ((*_TOKEN_FEATURES, features.PADDING_MASK), source, real, size),
        (_MASK_FEATURES, masked, used, config.mask.max_predictions_per_seq),
        ((features.SENTENCE_ORDER_LABELS,), source, everything, 1),
    ):
        for name in names:
            record_name = features.record_name(name)
            columns[record_name] = values[name][selected], selected.sum(axis=1)
            widths[record_name] = width
    return tfrecord.serialize_batch(columns, widths)


def _count_masks(padded, masked, counts: Counter) -> None:
    used = masked[features.MASK_WEIGHTS] > 0
    counts["mask_sample_tokens"] += int(padded[features.PADDING_MASK].sum())
    counts["mask_sample_masked"] += int(used.sum())
    # Tokens of one n-gram share an index; its words are the word starts among them.
    positions = masked[features.MASK_POSITIONS]
    starts = np.take_along_axis(padded[features.TOKEN_BOUNDARY], positions, axis=1)
    rows = np.arange(len(used), dtype=np.int64)[:, None]
    grams = rows * (1 << 32) + masked[features.MASK_NGRAMS]
    _, gram = np.unique(grams[used], return_inverse=True)
    words = np.maximum(np.bincount(gram, weights=starts[used]), 1).astype(int)
    for n, grams in enumerate(np.bincount(words).tolist()):
        if grams:
            counts[f"masked_ngrams_of_{n}"] += grams


def shuffled(size: int, seed: int, key: tuple[int, int]) -> list[int]:
    """Returns a keyed order of records, because the original reads files in order."""
    rng = KeyedRandom(seed, keyed_random.ORDER, *key)
    return [k for _, k in sorted((rng.bits(), k) for k in range(size))]
