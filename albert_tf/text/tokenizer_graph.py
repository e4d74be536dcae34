"""Base class of the tokenizers that run in the TensorFlow graph.

Legend: `B` strings, `N` parts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.errors import UsageError, require
from albert_tf.text.added_tokens import AddedTokens
from albert_tf.text.normalization import IDENTITY, PAGE_SIZE, CharacterTable
from albert_tf.text.tokenizer import MASK, Tokenizer

# The characters that `\s` matches in the tokenizers library.
SPACE = r"\t\n\x0b\f\r\x{85}\p{Z}"
_CUT = b"\xff"  # never occurs in UTF-8 text


class TokensWithOffsets(NamedTuple):
    """The tokens of `B` strings; see `Tokenizer.encode_with_offsets`.

    Attributes:
        ids: ragged int32 `[B, None]`.
        starts: ragged int32 `[B, None]`. First character of each token.
        ends: ragged int32 `[B, None]`. End of each token (exclusive).
        codes: ragged int32 `[B, None]`. The characters of the raw texts.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    codes: tf.RaggedTensor


class GraphBase(tf.Module):
    """Turns strings into ids; subclasses define `tokenize_between_added`."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(name="graph_tokenizer")
        self._mask_id = tokenizer.mask_id
        self._mask = tokenizer.id_to_token(tokenizer.mask_id)
        added = AddedTokens(tokenizer.added_tokens, tokenizer.normalize)
        self._stages = [stage.is_normalized for stage in added.stages]
        self._patterns = [_pattern(stage.tokens) for stage in added.stages]
        with tf.init_scope(), tf.device("CPU:0"):
            self._tables = [_table(stage.tokens) for stage in added.stages]

    def __call__(self, texts) -> tf.RaggedTensor:
        """Tokenizes one string or a vector of strings.

        Args:
            texts: string `[B]` or a scalar. Any bytes are accepted.

        Returns:
            Ragged int32 `[B, None]`, or a tensor `[None]` for a scalar.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank == 0:
            return self(texts[None])[0]
        if texts.shape.rank != 1:
            raise UsageError(
                "texts: expected one string or a vector of strings, "
                f"received {texts.shape}"
            )
        return self.tokenize(texts)

    def after_word(self, texts: tf.Tensor) -> tf.Tensor:
        """Does the same as `Tokenizer.after_word`, for strings `[B]`."""
        return texts

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into ids, ragged int32 `[B, None]`."""
        if not self._stages:
            return self.tokenize_between_added(texts)
        parts, count = as_utf8(texts), tf.size(texts, tf.int64)
        row, ids = tf.range(count), tf.fill([count], -1)  # the id of an added token
        for is_normalized, (pattern, rewrite), table in zip(
            self._stages, self._patterns, self._tables, strict=True
        ):
            if is_normalized:
                parts = self.normalize(parts)
            parts = tf.where(ids < 0, parts, "")
            divided = tf.strings.regex_replace(parts, pattern, rewrite)
            pieces = tf.strings.split(divided, _CUT)
            of = pieces.value_rowids()
            parts, row = pieces.values, tf.gather(row, of)
            ids = tf.maximum(tf.gather(ids, of), table.lookup(parts))
        tokens = self.tokenize_between_added(tf.where(ids < 0, parts, ""))
        is_added = ids >= 0
        alone = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(ids, is_added), tf.cast(is_added, tf.int64), validate=False
        )
        tokens = tf.concat([tokens, alone], axis=1)
        return tf.RaggedTensor.from_value_rowids(
            tokens, row, count, validate=False
        ).merge_dims(1, 2)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Does the same as `Tokenizer.normalize`, for strings `[B]`."""
        return texts

    def tokenize_masked(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids for strings in which `[MASK]` marks masked tokens.

        The ids equal `Tokenizer.encode_masked`'s. `texts` are strings
        `[B]` of any bytes; the ids are ragged int32 `[B, None]`.
        """
        texts = tf.strings.regex_replace(as_utf8(texts), _exactly(MASK), self._mask)
        texts = tf.strings.regex_replace(texts, _exactly(self._mask), _CUT)
        parts = tf.strings.split(texts, _CUT)
        row, place = parts.value_rowids(), tf.range(tf.size(parts.values, tf.int64))
        is_first = place == tf.gather(parts.row_starts(), row)
        is_last = place == tf.gather(parts.row_limits(), row) - 1
        ids = self.tokenize_between(parts.values, is_first, is_last)
        masks = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(~is_last)], self._mask_id),
            tf.cast(~is_last, tf.int64),
            validate=False,
        )
        ids = tf.concat([ids, masks], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)

    def tokenize_between(
        self, parts: tf.Tensor, is_first: tf.Tensor, is_last: tf.Tensor
    ) -> tf.RaggedTensor:
        """Tokenizes `[N]` parts of texts that were cut at masks, each separately.

        `is_first` and `is_last` say whether no mask precedes or follows the part.
        """
        del is_first, is_last
        return self.tokenize(parts)


class CharacterFold(tf.Module):
    """Replaces characters by the rows of a `CharacterTable`."""

    def __init__(self, table: CharacterTable):
        super().__init__(name="character_fold")
        with tf.init_scope(), tf.device("CPU:0"):
            self._pages = tf.constant(table.pages)
            self._row_of = tf.constant(table.row_of)
            self._characters = tf.RaggedTensor.from_row_splits(
                tf.constant(table.values), tf.constant(table.splits)
            )

    def __call__(self, old: tf.Tensor) -> tf.RaggedTensor:
        """Replaces code points, int32 `[n]`, by table rows, ragged `[n, None]`."""
        rows = look_up(self._pages, self._row_of, old)
        folded = tf.gather(self._characters, rows)
        same = tf.where(rows == IDENTITY)
        values = tf.tensor_scatter_nd_update(
            folded.values,
            tf.gather(folded.row_splits, same),
            tf.gather(old, same[:, 0]),
        )
        return folded.with_values(values)


def _pattern(tokens: Mapping[str, Mapping[str, Any]]) -> tuple[str, bytes]:
    """Returns an RE2 pattern for added tokens, and the rewrite that marks them."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for text in sorted(tokens, key=len, reverse=True):
        flags = tokens[text]["lstrip"], tokens[text]["rstrip"]
        space = tuple(f"[{SPACE}]*" if flag else "" for flag in flags)
        kinds.setdefault(space, []).append(_exactly(text))
    groups = [f"{a}({'|'.join(texts)}){b}" for (a, b), texts in kinds.items()]
    if len(groups) > 1:
        inside = [a for a in tokens for b in tokens if a != b and a in b][:1]
        message = "added tokens that differ in lstrip or rstrip must not be in others"
        require(not inside, message, *inside)
    token = b"".join(rb"\%d" % (k + 1) for k in range(len(groups)))
    return "|".join(groups), _CUT + token + _CUT


def _table(tokens: Mapping[str, Mapping[str, Any]]) -> tf.lookup.StaticHashTable:
    """Returns a lookup table of the ids of added tokens; -1 for other text."""
    ids = [token["id"] for token in tokens.values()]
    pairs = tf.lookup.KeyValueTensorInitializer([*tokens], ids, tf.string, tf.int32)
    return tf.lookup.StaticHashTable(pairs, default_value=-1)


def _exactly(text: str) -> str:
    """Returns an RE2 pattern that matches only this text."""
    return "".join(f"\\x{{{ord(char):x}}}" for char in text)


def look_up(pages: tf.Tensor, values: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Returns the values of code points in a table made by `normalization.in_pages`."""
    page = tf.gather(pages, codes // PAGE_SIZE)
    return tf.gather(values, page * PAGE_SIZE + codes % PAGE_SIZE)


def as_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 by spaces.

    An invalid byte must neither make the batch fail nor hide the text after it.
    """
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=ord(" ")
    )
