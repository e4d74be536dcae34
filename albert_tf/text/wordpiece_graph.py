"""WordPiece as TensorFlow operations, for use inside a SavedModel.

Legend: `B` strings, `N` characters of all words, `W` words.

Only operations of core TensorFlow are used. TensorFlow Text's FastBertTokenizer returns
other ids for control and compatibility characters and for long words
(docs/fidelity.md), and trusts the serialized vocabulary that a file gives it.
"""

import numpy as np
import tensorflow as tf

from albert_tf.text.tokenizer_graph import (
    CharacterFold,
    GraphBase,
    TokensWithOffsets,
    as_utf8,
)

_CODES = 0x110000
_WORD, _INSIDE = 0, 1  # states before the first character of a token


class GraphWordPiece(GraphBase):
    """Turns strings into the same ids as `WordPieceTokenizer.encode`.

    Attach the object to the model that is saved; otherwise its vocabulary is lost.
    """

    def __init__(self, tokenizer, continues: str, max_word: int):
        super().__init__(tokenizer)
        self._max_word = max_word
        self._unk_id = tokenizer.unk_id
        self._fold = CharacterFold(tokenizer.character_table())
        # A trie of all tokens: (state, character) to state, and the token ending there.
        children: dict[int, int] = {}
        ids = [-1, -1]
        for token_id, token in enumerate(tokenizer.vocabulary[: tokenizer.model_size]):
            state = _INSIDE if token.startswith(continues) else _WORD
            chars = token.removeprefix(continues)
            if len(chars) > max_word:
                continue  # longer than any word that is split
            for char in chars:
                state = children.setdefault(state * _CODES + ord(char), len(ids))
                if state == len(ids):
                    ids.append(-1)
            ids[state] = token_id
        ids[:2] = -1, -1  # no token is empty
        with tf.init_scope(), tf.device("CPU:0"):
            self._ids = tf.constant(ids, tf.int32)
            self._children = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    np.array([*children], np.int64),
                    np.array([*children.values()], np.int64),
                ),
                default_value=-1,
            )

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        codes = tf.strings.unicode_decode(as_utf8(texts), "UTF-8")
        folded = codes.with_values(self._fold(codes.values)).merge_dims(1, 2)
        return tf.strings.unicode_encode(folded, "UTF-8")

    def tokenize_between_added(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into ids, ragged int32 `[B, None]`."""
        return self.tokenize_with_offsets(texts).ids

    def tokenize_with_offsets(self, texts: tf.Tensor) -> TokensWithOffsets:
        """Tokenizes strings `[B]`; see `Tokenizer.encode_with_offsets`."""
        codes = tf.strings.unicode_decode(as_utf8(texts), "UTF-8")
        folded = self._fold(codes.values)
        chars, place = folded.values, folded.value_rowids()
        row = tf.gather(codes.value_rowids(), place)
        letter = chars != ord(" ")
        # A word begins after a space, and where a text begins.
        goes_on = letter[:-1] & (row[:-1] == row[1:])
        begins = letter & ~tf.concat([tf.zeros_like(letter[:1]), goes_on], 0)
        chars, place, row, begins = (
            tf.boolean_mask(x, letter) for x in (chars, place, row, begins)
        )
        word = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        ids, first, last = self._split(chars, word, tf.where(begins)[:, 0])
        base = tf.gather(codes.row_starts(), tf.gather(row, first))
        # Side "left" is an operation that exported models may not have.
        before = tf.range(codes.nrows() + 1) - 1
        splits = tf.searchsorted(
            tf.gather(row, first), before, side="right", out_type=tf.int64
        )

        def ragged(values):
            return tf.RaggedTensor.from_row_splits(
                tf.cast(values, tf.int32), splits, validate=False
            )

        starts = tf.gather(place, first) - base
        ends = tf.gather(place, last) + 1 - base
        return TokensWithOffsets(ragged(ids), ragged(starts), ragged(ends), codes)

    def _split(self, chars, word, begins) -> tuple[tf.Tensor, ...]:
        """Splits words into ids, int32, and first and last characters, int64."""
        count = tf.size(chars, tf.int64)
        limits = tf.concat([begins[1:], [count]], 0)
        ids, lengths = self._longest(chars, tf.gather(limits, word), begins)
        # Follows the tokens from the start of every word to its end.
        known = limits - begins <= self._max_word

        def step(at, of, taken, known):
            after = at + tf.gather(lengths, at)
            taken = _with(taken, at, True)
            known = _with(known, tf.boolean_mask(of, after == at), False)
            more = (after > at) & (after < tf.gather(limits, of))
            after, of = tf.boolean_mask(after, more), tf.boolean_mask(of, more)
            return after, of, taken, known

        of = tf.where(known)[:, 0]
        vector = tf.TensorShape([None])
        _, _, taken, known = tf.while_loop(
            lambda at, of, taken, known: tf.size(at) > 0,
            step,
            (tf.gather(begins, of), of, tf.zeros_like(chars, tf.bool), known),
            shape_invariants=(vector, vector, vector, vector),
        )
        of_known = tf.gather(known, word)
        taken = _with(taken & of_known, tf.boolean_mask(begins, ~known), True)
        first = tf.where(taken)[:, 0]
        is_known = tf.gather(of_known, first)
        last = tf.where(
            is_known,
            first + tf.gather(lengths, first),
            tf.gather(limits, tf.gather(word, first)),
        )
        return tf.where(is_known, tf.gather(ids, first), self._unk_id), first, last - 1

    def _longest(self, chars, limits, begins) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the longest token at each character, and its length or 0, `[N]`."""
        start = tf.range(tf.size(chars, tf.int64))
        state = tf.fill([tf.size(chars)], tf.constant(_INSIDE, tf.int64))
        state = _with(state, begins, np.int64(_WORD))

        def step(start, state, length, ids, lengths):
            inside = start + length < tf.gather(limits, start)
            start, state = (
                tf.boolean_mask(start, inside),
                tf.boolean_mask(state, inside),
            )
            char = tf.cast(tf.gather(chars, start + length), tf.int64)
            state = self._children.lookup(state * _CODES + char)
            start, state = (tf.boolean_mask(x, state >= 0) for x in (start, state))
            length += 1
            token = tf.gather(self._ids, state)
            ends = token >= 0
            places = tf.boolean_mask(start, ends)
            ids = tf.tensor_scatter_nd_update(ids, places[:, None], token[ends])
            lengths = _with(lengths, places, length)
            return start, state, length, ids, lengths

        vector = tf.TensorShape([None])
        *_, ids, lengths = tf.while_loop(
            lambda start, *_: tf.size(start) > 0,
            step,
            (start, state, np.int64(0), tf.zeros_like(chars), tf.zeros_like(start)),
            shape_invariants=(vector, vector, tf.TensorShape([]), vector, vector),
        )
        return ids, lengths


def _with(values: tf.Tensor, places: tf.Tensor, value) -> tf.Tensor:
    """Returns a vector with another value at some places."""
    new = tf.fill([tf.size(places)], tf.cast(value, values.dtype))
    return tf.tensor_scatter_nd_update(values, places[:, None], new)
