r"""Byte-level BPE as TensorFlow operations, for use inside a SavedModel.

Legend: `B` strings, `W` words, `N` symbols.

Only operations of core TensorFlow are used. The pattern that splits text into words is
GPT-2's; RE2 has no look-ahead, so its `\s+(?!\S)` becomes a mark before the last white
space of a run. Merging follows the library: within a word, the pair of the lowest rank
is merged first, from left to right, until no pair is left.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_graph import SPACE, GraphBase, TokensWithOffsets, as_utf8

# Separates words: this byte never occurs in UTF-8 text, and RE2 never matches it.
_MARK = b"\xff"
_LAST_SPACE = f"([{SPACE}][^{SPACE}])"
_WORD = (
    r"('s|'t|'re|'ve|'m|'ll|'d"
    rf"| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACE}\p{{L}}\p{{N}}]+|[{SPACE}]+)"
)


class GraphByteBPE(GraphBase):
    """Turns strings into the same ids as `ByteBPETokenizer.encode`.

    Attach the object to the model that is saved; otherwise its vocabulary is lost.

    Args:
        byte_ids: int `[256]`. Id of each byte.
        merges: Sequence of (left id, right id, merged id), in order of priority.
        add_prefix_space: Whether to put a space before each text.
        use_regex: Whether to split text into words first.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        byte_ids: Sequence[int],
        merges: Sequence[tuple[int, int, int]],
        add_prefix_space: bool,
        use_regex: bool,
    ):
        super().__init__(tokenizer)
        self._mask_has_space = tokenizer.mask_has_space
        self._add_prefix_space = add_prefix_space
        self._use_regex = use_regex
        table = np.array(merges, np.int64).reshape(-1, 3)
        self._size = int(max(np.max(byte_ids), table.max(initial=0))) + 1
        self._no_rank = np.int64(len(table))
        with tf.init_scope(), tf.device("CPU:0"):
            self._byte_ids = tf.constant(byte_ids, tf.int64)
            # The vocabulary writes each byte of a token as one character.
            lengths = [len(token) for token in tokenizer.vocabulary]
            self._lengths = tf.constant(lengths, tf.int64)
            self._merged = tf.constant(np.append(table[:, 2], -1), tf.int64)
            self._ranks = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    table[:, 0] * self._size + table[:, 1],
                    np.arange(len(table), dtype=np.int64),
                ),
                default_value=self._no_rank,
            )

    def tokenize_between_added(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into ids, ragged int32 `[B, None]`."""
        return self._tokenize(self._prefixed(as_utf8(texts)))[0]

    def tokenize_with_offsets(self, texts: tf.Tensor) -> TokensWithOffsets:
        """Tokenizes strings `[B]`; see `Tokenizer.encode_with_offsets`.

        A token that covers part of a character gets the span of the whole character.
        """
        texts = as_utf8(texts)
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        prefixed = self._prefixed(texts)
        ids, octets = self._tokenize(prefixed)
        # An added space counts as part of the text's first character.
        added = tf.strings.length(prefixed) - tf.strings.length(texts)
        before = codes.row_starts() + tf.cumsum(tf.cast(added, tf.int64))
        row = ids.value_rowids()
        begins = (octets < 0x80) | (octets >= 0xC0)
        character = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        lengths = tf.gather(self._lengths, ids.values)
        after = tf.cumsum(lengths)

        def places(octet):
            place = tf.gather(character, octet) - tf.gather(before, row)
            return ids.with_values(tf.cast(tf.maximum(place, 0), tf.int32))

        return TokensWithOffsets(
            ids, places(after - lengths), places(after - 1) + 1, codes
        )

    def _tokenize(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns the ids of UTF-8 strings, and the concatenated bytes of all."""
        words = self._words(texts)
        symbols = tf.strings.bytes_split(words.values)
        octets = tf.reshape(tf.io.decode_raw(symbols.values, tf.uint8), [-1])
        ids = tf.gather(self._byte_ids, tf.cast(octets, tf.int32))
        num_words = tf.size(words.values, tf.int64)
        ids, word_of = self._merge(ids, symbols.value_rowids(), num_words)
        ids = tf.RaggedTensor.from_value_rowids(
            tf.cast(ids, tf.int32), word_of, num_words, validate=False
        )
        return words.with_values(ids).merge_dims(1, 2), octets

    def tokenize_between(self, parts, is_first, is_last):
        """See the base class. Removes the white space that belongs to a mask."""
        del is_first
        if not self._mask_has_space:
            return self.tokenize(parts)
        bare = tf.strings.regex_replace(parts, f"[{SPACE}]+\\z", "")
        return self.tokenize(tf.where(is_last, parts, bare))

    def _prefixed(self, texts: tf.Tensor) -> tf.Tensor:
        return self.after_word(texts) if self._add_prefix_space else texts

    def after_word(self, texts: tf.Tensor) -> tf.Tensor:
        texts = as_utf8(texts)  # an invalid first byte counts as the space
        bare = (tf.strings.substr(texts, 0, 1) != " ") & (texts != "")
        for pattern, _ in self._patterns:
            bare &= ~tf.strings.regex_full_match(texts, f"(?s)({pattern}).*")
        return tf.where(bare, tf.strings.join([" ", texts]), texts)

    def _words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits each text into non-empty words, ragged string `[B, None]`."""
        if self._use_regex:
            texts = tf.strings.regex_replace(texts, _LAST_SPACE, _MARK + rb"\1")
            texts = tf.strings.regex_replace(texts, _WORD, rb"\1" + _MARK)
        words = tf.strings.split(texts, _MARK)
        return tf.ragged.boolean_mask(words, words != b"")

    def _merge(self, ids, word_of, num_words):
        """Merges symbols, int64 `[N]`, within words until no pair can be merged."""

        def find(ids, word_of):
            """Returns the rank of each symbol's pair with the next, or `_no_rank`."""
            ranks = self._ranks.lookup(ids[:-1] * self._size + ids[1:])
            ranks = tf.where(word_of[:-1] == word_of[1:], ranks, self._no_rank)
            last = tf.fill([tf.size(ids) - tf.size(ranks)], self._no_rank)
            return tf.concat([ranks, last], 0)

        def unfinished(ids, word_of, ranks):
            del ids, word_of
            return tf.reduce_any(ranks < self._no_rank)

        def merge(ids, word_of, ranks):
            lowest = tf.math.unsorted_segment_min(ranks, word_of, num_words)
            taken = (ranks < self._no_rank) & (ranks == tf.gather(lowest, word_of))
            # Overlapping pairs (`aaa`): take every other one, from the left.
            opens = taken & ~tf.concat([[False], taken[:-1]], 0)
            place = tf.range(tf.size(ids))
            first = tf.gather(
                tf.concat([[0], tf.boolean_mask(place, opens)], 0),
                tf.cumsum(tf.cast(opens, tf.int32)),
            )
            taken &= (place - first) % 2 == 0
            ids = tf.where(taken, tf.gather(self._merged, ranks), ids)
            stays = ~tf.concat([[False], taken[:-1]], 0)
            ids, word_of = tf.boolean_mask(ids, stays), tf.boolean_mask(word_of, stays)
            return ids, word_of, find(ids, word_of)

        vector = tf.TensorShape([None])
        ids, word_of, _ = tf.while_loop(
            unfinished,
            merge,
            (ids, word_of, find(ids, word_of)),
            shape_invariants=(vector, vector, vector),
        )
        return ids, word_of
