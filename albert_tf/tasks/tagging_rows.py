"""Turns sentences of words into rows `[CLS] words [SEP]`.

Legend: `N` sentences, `R` rows, `P` words of all sentences.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.task import EncodedExamples
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_seq_length: int
) -> EncodedExamples:
    """Returns rows of words that were each tokenized alone.

    A word without tokens, such as a lone accent, becomes `<unk>`. A sentence that does
    not fit continues, from the next word on, in another row. Only a word that is longer
    than a row loses tokens. A sentence without words has no row.

    Args:
        sentences: sequence of `N` sequences of str.
        tokenizer: `Tokenizer`.
        max_seq_length: int. Maximum length of a row, special tokens included.
    """
    room = max_seq_length - 2
    pieces, splits = _pieces(tokenizer, [word for row in sentences for word in row])
    full = np.diff(splits)
    kept = np.minimum(full, room)
    sizes = [len(row) for row in sentences]
    row_of = _row_numbers(kept.tolist(), sizes, room)
    truncated = np.zeros(len(sizes), np.bool_)
    truncated[np.repeat(np.arange(len(sizes)), sizes)[full > kept]] = True
    rows, places = _assemble(tokenizer, pieces, splits, kept, row_of)
    rows = dataclasses.replace(rows, num_truncated=int(truncated.sum()))
    starts = np.searchsorted(row_of, np.arange(len(rows) + 1))
    return EncodedExamples(
        rows=rows,
        unit_splits=np.arange(len(rows) + 1, dtype=np.int64),
        targets={},
        truncated=truncated,
        place_splits=starts.astype(np.int64),
        places=places,
    )


def _pieces(tokenizer: Tokenizer, words: Sequence[str]):
    """Returns the tokens of words, at least one each, and where each word's begin."""
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids, splits = tokenizer.encode_batch_flat(list(distinct))
    ids, splits = ids.tolist(), splits.tolist()
    pieces = [ids[a:b] or [tokenizer.unk_id] for a, b in itertools.pairwise(splits)]
    rows = [pieces[distinct[word]] for word in words]
    flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
    return flat, np.cumsum([0, *map(len, rows)], dtype=np.int64)


def _row_numbers(lengths: list[int], sizes: list[int], room: int) -> np.ndarray:
    """Returns the index of the row of each word, int64 `[P]`.

    Args:
        lengths: list of int `[P]`. Number of tokens of each word, at most `room`.
        sizes: list of int `[N]`. Number of words of each sentence.
        room: int. Number of tokens of a row.
    """
    numbers, row, word = [], -1, 0
    for size in sizes:
        used = room  # a sentence starts a row
        for length in lengths[word : word + size]:
            if used + length > room:
                row, used = row + 1, 0
            used += length
            numbers.append(row)
        word += size
    return np.array(numbers, np.int64)


def _assemble(tokenizer, pieces, splits, kept, row_of):
    """Returns the rows, and the index of each word's first token in its row."""
    num_rows = int(row_of[-1]) + 1 if len(row_of) else 0
    counts = np.bincount(row_of, kept, num_rows).astype(np.int64)
    row_splits = np.concatenate([[0], np.cumsum(counts + 2)]).astype(np.int64)
    # In the array of all rows, each row adds [CLS] and [SEP] to the tokens before.
    starts = np.cumsum(kept) - kept + 2 * row_of + 1
    ids = np.full(row_splits[-1], tokenizer.sep_id, np.int32)
    ids[row_splits[:-1]] = tokenizer.cls_id
    inner = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    ids[np.repeat(starts, kept) + inner] = pieces[np.repeat(splits[:-1], kept) + inner]
    rows = inputs.EncodedTexts(ids, row_splits, (counts + 2).astype(np.int32))
    return rows, (starts - row_splits[row_of]).astype(np.int32)
