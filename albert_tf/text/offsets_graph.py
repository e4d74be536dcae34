"""Aligns each token with the raw text, as TensorFlow operations.

The result equals `offsets`'s; these functions run inside a SavedModel.

Legend: `B` strings, `n` characters of all raw texts, `k` of them that are kept, `m`
characters after normalization, `P` pieces.

Everything is computed for all strings at once, on flat vectors. The graph's tokenizer
folds characters by a table, so the raw character of each folded one is known, and
`SentencepieceTokenizeWithOffsetsOp` gives each piece's bytes in the folded text.
"""

import functools
from typing import NamedTuple

import numpy as np
import sentencepiece
import tensorflow as tf

from albert_tf.text import normalization
from albert_tf.text.offsets import normal_lengths, part_places
from albert_tf.text.tokenizer_graph import TokensWithOffsets, as_utf8

_SPACE = "▁"
_WHOLE = -1  # in place of the span of a part: the whole piece


class _Folded(NamedTuple):
    """Normalized texts, and the source of each character in its raw text."""

    codes: tf.RaggedTensor  # int32 [B, None]: m characters
    starts: tf.Tensor  # int64 [m]: first raw character
    ends: tf.Tensor  # int64 [m]: end of the raw characters (exclusive)
    stops: tf.Tensor  # int64 [B]: end of the last word in the raw text, or 0


class GraphOffsets(tf.Module):
    """Turns strings into ids with offsets, as `AlbertTokenizer.encode_with_offsets`.

    Attach the object to the model that is saved.
    """

    def __init__(self, tokenizer):
        super().__init__(name="graph_offsets")
        self.graph_tokenizer = tokenizer.graph
        self._space_id = tokenizer.token_to_id(_SPACE)
        pieces = tokenizer.vocabulary
        with tf.init_scope(), tf.device("CPU:0"):
            self._begins = tf.constant([p.startswith(_SPACE) for p in pieces])
            self._lengths = tf.constant([len(piece) for piece in pieces], tf.int64)
            self._parts = None
            if tokenizer.replacements:
                parts, splits = _part_table(tokenizer)
                self._parts = tf.RaggedTensor.from_row_splits(
                    tf.constant(parts), tf.constant(splits)
                )
                changed = _changed_characters(tokenizer.model)
                self._changed = [*map(tf.constant, changed)]

    def __call__(self, texts: tf.Tensor) -> TokensWithOffsets:
        """Tokenizes strings `[B]`; any bytes are accepted."""
        codes = tf.strings.unicode_decode(as_utf8(texts), "UTF-8")
        folded = self._fold(codes)
        normalized = tf.strings.unicode_encode(folded.codes, "UTF-8")
        normalized = self.graph_tokenizer.lower_sigma(normalized, folded.codes)
        ids, starts, ends = self.graph_tokenizer.tokenize_with_bytes(normalized)
        begin, end = _characters(folded.codes, starts, ends)
        splits, rows = ids.row_splits, ids.value_rowids()
        ids = ids.values
        if self._parts is not None:
            new = self.graph_tokenizer.replace(ids)
            begin, end = self._split_spans(folded.codes, ids, begin, end)
            splits = tf.gather(new.row_splits, splits)
            rows = tf.gather(rows, new.value_rowids())
            ids = new.values
        # SentencePiece assigns an expanded character only to the last of its pieces.
        limits = tf.gather(folded.codes.row_limits(), rows)
        is_first = tf.range(tf.size(ids, tf.int64)) == tf.gather(splits, rows)
        partial = (begin == end) & (end < limits)
        partial &= ~is_first | (ids != self._space_id)
        end += tf.cast(partial, tf.int64)
        # One padding element keeps every index in range.
        first = tf.gather(tf.concat([folded.starts, [0]], 0), begin)
        first = tf.where(begin < limits, first, tf.gather(folded.stops, rows))
        last = tf.gather(tf.concat([[0], folded.ends], 0), end)
        last = tf.where(end > begin, last, first)
        opens = is_first & tf.gather(self._begins, ids)
        first = tf.where(opens, tf.zeros_like(first), first)

        def ragged(values):
            return tf.RaggedTensor.from_row_splits(
                tf.cast(values, tf.int32), splits, validate=False
            )

        return TokensWithOffsets(ragged(ids), ragged(first), ragged(last), codes)

    def _fold(self, codes: tf.RaggedTensor) -> _Folded:
        """Normalizes texts, as `offsets.source_map` does."""
        old, rows = codes.values, codes.value_rowids()
        row_starts = codes.row_starts()
        word = ~is_space(old)
        words = counts_before(word)
        before = words[:-1] - tf.gather(tf.gather(words, row_starts), rows)
        after = tf.gather(tf.gather(words, codes.row_limits()), rows) - words[:-1]
        # Of each run of white space inside a text, the first character is kept.
        after_word = tf.concat([tf.zeros_like(word[:1]), word[:-1]], 0)
        is_kept = word | (after_word & (before > 0) & (after > 0))
        places = tf.where(is_kept)[:, 0]
        chars = tf.where(tf.gather(word, places), tf.gather(old, places), ord(" "))
        new = self.graph_tokenizer.fold(chars)
        kept_before = tf.gather(counts_before(is_kept), codes.row_splits)
        splits = tf.gather(new.row_splits, kept_before)
        # Dropped characters belong to the one before, except white space at the end.
        held = new.row_lengths() > 0
        holders = tf.boolean_mask(places, held)
        stops = _last_ends(word, words, codes)
        holder_rows = tf.gather(rows, holders)
        next_holders = tf.concat([holders[1:], holders[:1]], 0)
        same_row = tf.concat([holder_rows[1:] == holder_rows[:-1], holders[:1] < 0], 0)
        ends = tf.where(same_row, next_holders, tf.gather(stops, holder_rows))
        holder = tf.gather(counts_before(held), new.value_rowids())
        base = tf.gather(tf.gather(row_starts, holder_rows), holder)
        return _Folded(
            tf.RaggedTensor.from_row_splits(new.values, splits, validate=False),
            tf.gather(holders, holder) - base,
            tf.gather(ends, holder) - base,
            stops - row_starts,
        )

    def _split_spans(self, codes, ids, begin, end):
        """Returns the spans of the parts of pieces; see `offsets._split_span`."""
        changed, lengths = self._changed
        entry = tf.searchsorted(changed, codes.values, side="right") - 1
        is_changed = tf.gather(changed, entry) == codes.values
        lengths = tf.where(is_changed, tf.gather(lengths, entry), 1)
        # The source of each character that SentencePiece produces, and an end mark.
        count = tf.size(codes.values, tf.int64)
        source = tf.concat([tf.repeat(tf.range(count), lengths), [count]], 0)
        before = tf.concat([[0], tf.cumsum(lengths)], 0)
        made = tf.gather(before, begin)
        length = tf.gather(self._lengths, ids)
        missing = length - (tf.gather(before, end) - made)
        # No space precedes the first word of a text.
        is_aligned = (missing == 0) | ((missing == 1) & tf.gather(self._begins, ids))
        parts = tf.gather(self._parts, ids)
        places, piece = parts.values, parts.value_rowids()
        begin, end, made, missing, length, is_aligned = (
            tf.gather(column, piece)[:, None]
            for column in (begin, end, made, missing, length, is_aligned)
        )
        most = tf.size(source, tf.int64) - 1
        place = tf.clip_by_value(made + places - missing, 0, most)
        bounds = tf.where(places < missing, begin, tf.gather(source, place))
        bounds = tf.where(places == length, end, bounds)
        whole = ~is_aligned | (places == _WHOLE)
        spans = tf.where(whole, tf.concat([begin, end], 1), bounds)
        return tuple(tf.unstack(spans, axis=1))


def is_space(codes: tf.Tensor) -> tf.Tensor:
    """Returns the mask of the characters that `str.isspace` considers white space."""
    spaces = normalization.white_space()
    table = np.zeros(ord(spaces[-1]) + 2, np.bool_)
    table[[ord(char) for char in spaces]] = True
    return tf.gather(tf.constant(table), tf.minimum(codes, len(table) - 1))


def counts_before(flags: tf.Tensor) -> tf.Tensor:
    """Returns the number of true flags before each place and before the end, int64."""
    return tf.concat([[0], tf.cumsum(tf.cast(flags, tf.int64))], 0)


def _last_ends(word, words, codes: tf.RaggedTensor) -> tf.Tensor:
    """Returns the end of the last word of each text; the text's start without words."""
    places = tf.concat([[-1], tf.where(word)[:, 0]], 0)
    last = tf.gather(places, tf.gather(words, codes.row_limits()))
    return tf.maximum(last + 1, codes.row_starts())


def _characters(codes: tf.RaggedTensor, starts: tf.RaggedTensor, ends):
    """Converts byte positions in encoded texts to character indices, int64 `[P]`."""
    values = codes.values
    sizes = 1 + sum(tf.cast(values >= c, tf.int64) for c in (0x80, 0x800, 0x10000))
    character_of = tf.RaggedTensor.from_row_lengths(
        tf.zeros([tf.reduce_sum(sizes)], tf.bool), sizes, validate=False
    ).value_rowids()
    character_of = tf.concat([character_of, [tf.size(values, tf.int64)]], 0)
    bytes_before = tf.concat([[0], tf.cumsum(sizes)], 0)
    base = tf.gather(tf.gather(bytes_before, codes.row_starts()), starts.value_rowids())
    places = (base + starts.values, base + ends.values)
    return tuple(tf.gather(character_of, place) for place in places)


def _part_table(tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the spans of the parts that replace each piece, and row splits."""
    rows, splits = [], [0]
    for i, piece in enumerate(tokenizer.vocabulary):
        new = tokenizer.replacements.get(i)
        places = new and part_places(piece, [tokenizer.id_to_token(j) for j in new])
        rows += places or [(_WHOLE, _WHOLE)] * len(new or [i])
        splits.append(len(rows))
    return np.array(rows, np.int64).reshape(-1, 2), np.array(splits, np.int64)


@functools.lru_cache(maxsize=8)
def _changed_characters(model: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns characters that are not mapped to exactly one, and to how many."""
    # The codes, int32, ascend after a -1 that matches no character.
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    codes = np.array([*range(0xD800), *range(0xE000, 0x110000)], np.int32)
    lengths = np.ones(len(codes), np.int64)
    before = len(processor.normalize("0")) - 1
    for first in range(0, len(codes), 256):
        chars = [*map(chr, codes[first : first + 256].tolist())]
        text = processor.normalize(f"0{'0'.join(chars)}0")[before:]
        # Only blocks of 256 in which a character changes are examined one by one.
        if len(text) != 2 * len(chars) + 1 or text[::2].strip("0"):
            lengths[first : first + 256] = normal_lengths(processor, chars)
    changed = np.flatnonzero(lengths != 1)
    codes = np.append(-1, codes[changed]).astype(np.int32)
    return codes, np.append(1, lengths[changed])
