"""Turns words into rows in the graph, as `tasks.tags.tagging_rows` does.

Legend: `B` sentences, `P` words of all sentences, `R` rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class WordRows(NamedTuple):
    """Rows of words, without special tokens.

    Attributes:
        ids: int32 ragged `[R, None]`. Tokens.
        word_splits: int64 `[R + 1]`. Row `r` has the words from `word_splits[r]` to
            before `word_splits[r + 1]`.
        places: int64 `[P]`. Index of the first token of each word, in its row with
            `[CLS]`.
    """

    ids: tf.RaggedTensor
    word_splits: tf.Tensor
    places: tf.Tensor


def make_rows(
    words: tf.Tensor,
    splits: tf.Tensor,
    *,
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor],
    unk_id: int,
    room: int,
) -> WordRows:
    """Returns rows of words that were each tokenized alone.

    A word without tokens becomes `unk_id`. A sentence that does not fit continues, from
    the next word on, in another row. Only a word longer than a row loses tokens.

    Args:
        words: string `[P]`.
        splits: int64 `[B + 1]`. Sentence `i` has the words from `splits[i]` to before
            `splits[i + 1]`.
        tokenize: callable. From strings to ragged ids.
        unk_id: int. Id of `<unk>`.
        room: int. Number of tokens of a row.
    """
    ids = tokenize(words)
    empty = ids.row_lengths() == 0
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(empty)], unk_id), tf.cast(empty, tf.int64)
    )
    ids = tf.concat([ids[:, :room], unknown], 1)
    before = ids.row_splits  # tokens before each word, and of all words
    firsts = _first_words(before, splits, room)
    word_splits = tf.concat([firsts, splits[-1:]], 0)
    row_splits = tf.gather(before, word_splits)
    rows = tf.RaggedTensor.from_row_splits(ids.values, row_splits, validate=False)
    row_starts = tf.repeat(row_splits[:-1], word_splits[1:] - word_splits[:-1])
    return WordRows(rows, word_splits, before[:-1] - row_starts + 1)


def _first_words(before: tf.Tensor, splits: tf.Tensor, room: int) -> tf.Tensor:
    """Returns the number of the first word of each row, int64 `[R]`.

    Args:
        before: int64 `[P + 1]`. Number of tokens before each word.
        splits: int64 `[B + 1]`. Words of each sentence.
        room: int. Number of tokens of a row.
    """
    ends = splits[1:]
    # For a row that starts with each word, the first word that it has no room for.
    beyond = tf.searchsorted(before, before + room, side="right", out_type=tf.int64) - 1

    def step(current, is_first):
        active = current < ends
        is_first = tf.tensor_scatter_nd_update(
            is_first,
            tf.boolean_mask(current, active)[:, None],
            tf.ones([tf.math.count_nonzero(active)], tf.int32),
        )
        following = tf.minimum(tf.gather(beyond, current), ends)
        return tf.where(active, following, current), is_first

    _, is_first = tf.while_loop(
        lambda current, _: tf.reduce_any(current < ends),
        step,
        (splits[:-1], tf.zeros_like(before, tf.int32)),
    )
    return tf.where(is_first == 1)[:, 0]
