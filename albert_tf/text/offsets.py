"""Aligns each token with the characters of the raw text that it comes from.

Legend: `n` characters of the raw text, `m` characters after normalization, `P` pieces.

The original aligns the pieces with the text by a longest common subsequence within a
band (`run_squad`'s `_lcs_match`), and drops questions where less than 80% matches. Here
every step of normalization reports the source of its output, in linear time and for
every text. Where no character expands to several, the spans are the original's:

- the span of a piece begins with the white space before its word,
- the first piece begins at 0.

They differ where the original's alignment cuts: a raw character that becomes several
(`⑩`, `½`, `ﬁ`) belongs, whole, to each piece made of a part of it, and a character that
normalization drops (a combining accent) belongs to the piece of the character before
it, so that the answer `café` keeps a decomposed accent.
"""

import functools
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.text.normalization import combining_pattern

_SPACE = "▁"


def source_map(
    text: str, do_lower_case: bool, keep_accents: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source of each character of `normalize_text(text)`.

    The source consists of two int64 `[m]`: character `j` comes from
    `text[starts[j]:ends[j]]`, which includes the characters after it that normalization
    drops. `text` is a result of `to_unicode`.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    present = set(text)
    top = max(map(ord, present), default=0) + 1
    length_of, space_of = np.ones(top, np.int64), np.zeros(top, np.bool_)
    for char in present:
        space_of[ord(char)] = char.isspace()
        if not char.isascii():
            length_of[ord(char)] = _length(char, do_lower_case, keep_accents)
    space = space_of[codes]
    words = np.flatnonzero(~space)
    if not words.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    lengths = np.where(space, 0, length_of[codes])
    # White space inside the text: the first character of each run is the space.
    first = np.flatnonzero(space[1:] & ~space[:-1]) + 1
    lengths[first[first < words[-1]]] = 1
    producing = np.flatnonzero(lengths)
    # Dropped characters belong to the one before, except white space at the end.
    ends = np.append(producing, words[-1] + 1)[1:]
    return np.repeat(producing, lengths[producing]), np.repeat(ends, lengths[producing])


@functools.lru_cache(maxsize=1 << 16)
def _length(char: str, do_lower_case: bool, keep_accents: bool) -> int:
    """Returns the number of characters that normalization makes of one character."""
    if char.isspace():
        return 1
    if not keep_accents:
        char = combining_pattern().sub("", unicodedata.normalize("NFKD", char))
    return len(char.lower() if do_lower_case else char)


def piece_spans(
    processor, text: str, replacements: dict[int, list[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes normalized text, and returns ids int64 `[P]` and spans int64 `[P, 2]`.

    Start and (exclusive) end of a piece are equal only for a lone `▁` before the first
    word; a piece made of a part of a character spans the whole character. Pieces are
    replaced by the ids in `replacements` (the digit-comma rule).
    """
    proto = processor.encode(text, out_type="immutable_proto")
    rows = []
    for piece in proto.pieces:
        token_id, begin, end = piece.id, piece.begin, piece.end
        new = replacements.get(token_id)
        if new is None:
            rows.append((token_id, begin, end))
        else:
            parts = [processor.id_to_piece(i) for i in new]
            spans = _split_span(processor, text, piece.piece, parts, begin, end)
            rows += [(i, *span) for i, span in zip(new, spans, strict=True)]
    table = np.array(rows, np.int64).reshape(-1, 3)
    ids, spans = table[:, 0], table[:, 1:]
    # SentencePiece assigns an expanded character only to the last of its pieces.
    partial = (spans[:, 0] == spans[:, 1]) & (spans[:, 1] < len(text))
    partial[:1] &= ids[:1] != processor.piece_to_id(_SPACE)
    spans[partial, 1] += 1
    return ids, spans


def raw_spans(
    spans: np.ndarray, source: tuple[np.ndarray, np.ndarray], from_start: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Translates `piece_spans` by a `source_map` to starts and ends in the raw text.

    With `from_start`, the first piece includes the text before the first word.
    """
    starts, ends = source
    stop = ends[-1] if ends.size else 0
    starts = np.append(starts, stop)
    first = starts[spans[:, 0]]
    last = np.where(spans[:, 1] > spans[:, 0], ends[spans[:, 1] - 1], first)
    if from_start and len(first):
        first[0] = 0
    return first.astype(np.int32), last.astype(np.int32)


def include_marks(text: str, starts: np.ndarray, ends: np.ndarray) -> None:
    """Extends spans of the raw text over combining marks that no token contains.

    `ends`, int32 `[P]` and exclusive, is modified in place.
    """
    after = np.append(starts[1:], len(text))
    for i in np.flatnonzero(ends < after).tolist():
        end, limit = int(ends[i]), int(after[i])
        while end < limit and unicodedata.combining(text[end]):
            end += 1
        ends[i] = end


def part_places(piece: str, parts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Returns the spans of a piece's parts, in order; None if they do not match."""
    places, at = [], 0
    for part in parts:
        at = piece.find(part, at)
        if at < 0:
            return None
        places.append((at, at + len(part)))
        at += len(part)
    return places


def normal_lengths(processor, chars: Iterable[str]) -> np.ndarray:
    """Returns the number of characters that SentencePiece normalizes each one to.

    Each character is placed between others, since spaces at the ends of a text are
    dropped.
    """
    texts = processor.normalize(["00", *(f"0{char}0" for char in chars)])
    return np.array([len(text) for text in texts[1:]], np.int64) - len(texts[0])


def _split_span(processor, text, piece, parts, begin, end) -> list[tuple[int, int]]:
    """Returns the spans of the parts that replace the piece at `begin` to `end`."""
    # The source of each character of the piece.
    lengths = normal_lengths(processor, text[begin:end])
    bounds = [*np.repeat(np.arange(begin, end), lengths).tolist(), end]
    if piece.startswith(_SPACE) and len(bounds) == len(piece):
        bounds.insert(0, begin)  # no space precedes the first word of a text
    places = part_places(piece, parts)
    if places is None or len(bounds) != len(piece) + 1:
        return [(begin, end)] * len(parts)
    return [(bounds[first], bounds[last]) for first, last in places]
