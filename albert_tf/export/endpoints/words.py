"""Splits texts into words in the graph, as `TokenClassifier` does in Python.

Legend: `B` texts, `N` characters of all texts, `P` words of all texts.

Words are divided by white space. Punctuation and symbols before and after a word are
words, equal ones in a row one word. The Unicode categories are those of the Python that
exports the model.
"""

import functools
import sys
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.text.tokenizer_graph import as_utf8

_LETTER, _MARK, _SPACE = 0, 1, 2
_PAGE = 256


class Words(NamedTuple):
    """The words of texts.

    Attributes:
        strings: string `[P]`.
        splits: int64 `[B + 1]`. Text `i` has the words from `splits[i]` to before
            `splits[i + 1]`.
        starts, ends: int64 `[P]`. Characters of the words, as numbers of the `N`.
        characters: int32 ragged `[B, None]`. Code points of the texts.
    """

    strings: tf.Tensor
    splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    characters: tf.RaggedTensor


def split_words(texts: tf.Tensor) -> Words:
    """Returns the words of texts.

    Args:
        texts: string `[B]`. Bytes that are not UTF-8 count as spaces.
    """
    characters = tf.strings.unicode_decode(as_utf8(texts), "UTF-8")
    codes, splits = characters.values, characters.row_splits
    classes = _classes(codes)
    space = classes == _SPACE
    # Where the text continues, after the same kind of thing or another.
    text_of = characters.value_rowids()
    begins = ~space & (
        _before(space, True) | (text_of != _before(text_of, np.int64(-1)))
    )
    inner = _inner(classes == _LETTER, begins, space)
    inner_before = _before(inner, False)
    equal = ~inner_before & (codes == _before(codes, -1))
    same = tf.where(inner, inner_before, equal)
    opens = ~space & (begins | ~same)
    closes = ~space & _after(space | opens, True)
    starts = tf.where(opens)[:, 0]
    ends = tf.where(closes)[:, 0] + 1
    words_before = tf.concat([[0], tf.cumsum(tf.cast(opens, tf.int64))], 0)
    # Every character but white space is part of one word.
    letters = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(codes, ~space), ends - starts, validate=False
    )
    return Words(
        tf.strings.unicode_encode(letters, "UTF-8"),
        tf.gather(words_before, splits),
        starts,
        ends,
        characters,
    )


def _inner(letters: tf.Tensor, begins: tf.Tensor, space: tf.Tensor) -> tf.Tensor:
    """Returns which characters have a letter before and after them, or are one.

    Args:
        letters: bool `[N]`. Characters that are neither marks nor white space.
        begins: bool `[N]`. First characters after white space.
        space: bool `[N]`. White space.
    """
    upto = tf.cumsum(tf.cast(letters, tf.int32))
    before = upto - tf.cast(letters, tf.int32)
    # The letters before each part between white space, and after the last one.
    bounds = tf.concat([tf.boolean_mask(before, begins), upto[-1:], [0]], 0)
    part = tf.cumsum(tf.cast(begins, tf.int32))
    start = tf.gather(bounds, tf.maximum(part - 1, 0))
    return ~space & (upto > start) & (before < tf.gather(bounds, part))


def _before(values: tf.Tensor, first) -> tf.Tensor:
    """Returns the value of the character before each."""
    return tf.concat([tf.constant([first], values.dtype), values], 0)[:-1]


def _after(values: tf.Tensor, last) -> tf.Tensor:
    """Returns the value of the character after each."""
    return tf.concat([values, tf.constant([last], values.dtype)], 0)[1:]


def _classes(codes: tf.Tensor) -> tf.Tensor:
    pages, classes = _class_table()
    page = tf.gather(pages, codes // _PAGE)
    return tf.gather(classes, page * _PAGE + codes % _PAGE)


@functools.lru_cache
def _class_table() -> tuple[np.ndarray, np.ndarray]:
    """Returns the page of each 256 characters, and the classes on the pages."""
    classes = np.full(sys.maxunicode + 1, _LETTER, np.int32)
    for code in range(len(classes)):
        character = chr(code)
        if unicodedata.category(character)[0] in "PS":
            classes[code] = _MARK
        elif character.isspace():
            classes[code] = _SPACE
    pages, page_of = np.unique(classes.reshape(-1, _PAGE), axis=0, return_inverse=True)
    return page_of.reshape(-1).astype(np.int32), pages.reshape(-1)
