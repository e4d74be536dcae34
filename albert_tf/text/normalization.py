"""Normalizes text before SentencePiece, as the original code does.

`normalize_text` is the definition (the original's `preprocess_text`). The tables below
are derived from it, so that the in-graph tokenizer needs no Unicode library of its own
and follows the same Unicode version as the running Python.

1. Each run of white space (as for Python's `str.split`) becomes one space; white space
   at both ends is removed.
2. NFKD; then characters with a non-zero canonical combining class are removed. The
   class is not the category: U+20E3 (combining enclosing keycap) has class 0 and stays.
3. Lower-casing with Python's full mapping, including final sigma.
"""

import codecs
import functools
import re
import sys
import unicodedata
from collections.abc import Iterable

import numpy as np

_SIGMA, _SMALL_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c3", "\u03c2"
_SPACE_ON_ERROR = "albert_tf_space"
_SURROGATES = re.compile("[\ud800-\udfff]")
IDENTITY = 0  # first row of a `CharacterTable`: the character is unchanged
PAGE_SIZE = 256

# One invalid byte must neither raise nor hide the text after it. A space, unlike
# nothing, also keeps the words around it apart.
codecs.register_error(_SPACE_ON_ERROR, lambda error: (" ", error.end))


def to_unicode(text: str | bytes) -> str:
    """Returns text as `str`; lone surrogates and invalid UTF-8 become spaces."""
    if isinstance(text, bytes):
        return text.decode("utf-8", _SPACE_ON_ERROR)
    return text if text.isascii() else _SURROGATES.sub(" ", text)


def normalize_text(
    text: str | bytes, do_lower_case: bool = True, keep_accents: bool = False
) -> str:
    """Returns the text to give to SentencePiece (the original's `preprocess_text`).

    Bytes that are not UTF-8 become spaces. `do_lower_case` applies step 3, and
    `keep_accents` (Hugging Face's option of that name) skips step 2.
    """
    text = " ".join(to_unicode(text).split())
    if not (keep_accents or text.isascii()):
        text = unicodedata.normalize("NFKD", text)
        if not text.isascii():
            text = combining_pattern().sub("", text)
    return text.lower() if do_lower_case else text


class CharacterTable:
    """Maps each code point to its replacement, for code without Python strings.

    Row `row_of[pages[c // PAGE_SIZE] * PAGE_SIZE + c % PAGE_SIZE]` of the ragged table
    (`values`, `splits`) holds the code points that replace `c`. Row 0 is `[-1]` and
    stands for `c` itself.

    Args:
        folded_characters: Pairs of a character and its replacement.

    Attributes:
        pages: int32 `[0x1100]`. Index of the distinct page for each page of 256.
        row_of: int32 `[number of distinct pages * PAGE_SIZE]`. Row of the table.
        values: int32. The concatenated rows.
        splits: int64 `[rows + 1]`. Row splits of `values`.
    """

    def __init__(self, folded_characters: Iterable[tuple[str, str]]):
        rows = {(-1,): IDENTITY}
        row_of = np.zeros(sys.maxunicode + 1, np.int32)
        for char, folded in folded_characters:
            key = tuple(map(ord, folded))
            row_of[ord(char)] = rows.setdefault(key, len(rows))
        self.pages, self.row_of = in_pages(row_of)
        self.values = np.array([c for row in rows for c in row], np.int32)
        self.splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)


def in_pages(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compresses a table of code points: indices of distinct pages, and these pages."""
    table = values.reshape(-1, PAGE_SIZE)
    distinct, pages = np.unique(table, axis=0, return_inverse=True)
    return pages.reshape(-1).astype(np.int32), distinct.reshape(-1)


@functools.lru_cache
def character_table(do_lower_case: bool, keep_accents: bool) -> CharacterTable:
    """Returns the cached table of `normalize_text`; building it takes about a second.

    It leaves white space unchanged, and also capital sigma, whose lower case depends on
    the characters around it (`final_sigma_pattern`).
    """
    return CharacterTable(_folded_characters(do_lower_case, keep_accents))


@functools.lru_cache
def white_space() -> tuple[str, ...]:
    """Returns the characters at which `str.split` splits, in code point order."""
    return tuple(c for c in _characters() if c.isspace())


@functools.lru_cache
def white_space_pattern() -> str:
    """Returns an RE2 pattern for a run of characters at which `str.split` splits."""
    return f"[{_re2_class(white_space())}]+"


@functools.lru_cache
def final_sigma_pattern() -> str:
    r"""Returns an RE2 pattern for a capital sigma that ends a word.

    Replace a match by `\1ς\2`. This is Unicode's Final_Sigma: a cased letter before
    the sigma and none after it, not counting case-ignorable characters in between.
    `str.lower` itself determines which characters are cased or case-ignorable.
    """
    chars = [c for c in _characters() if c != "\n"]
    after = _lowered(c + _SIGMA for c in chars)
    between = _lowered("A" + c + _SIGMA for c in chars)
    cased = {c for c, s in zip(chars, after, strict=True) if s[-1] == _FINAL_SIGMA}
    ignorable = {
        c for c, s in zip(chars, between, strict=True) if s[-1] == _FINAL_SIGMA
    } - cased
    c, i = _re2_class(sorted(cased)), _re2_class(sorted(ignorable))
    return f"([{c}][{i}]*){_SIGMA}([{i}]*(?:[^{c}{i}]|\\z))"


@functools.lru_cache
def combining_pattern() -> re.Pattern:
    """Returns a pattern for characters with a non-zero canonical combining class."""
    chars = (chr(c) for c in range(0x300, 0x30000))  # covers all assigned ones
    return re.compile(f"[{''.join(c for c in chars if unicodedata.combining(c))}]")


@functools.lru_cache
def _characters() -> list[str]:
    """Returns the characters that a rule can apply to."""
    # These are planes 0, 1, 2 and 14 without surrogates. All others are ideographs
    # without decomposition, unassigned, or for private use.
    codes = (range(0xD800), range(0xE000, 0x30000), range(0xE0000, 0xF0000))
    return [chr(c) for part in codes for c in part]


def _lowered(strings) -> list[str]:
    # One call for all strings: a line break is neither cased nor case-ignorable.
    return "\n".join(strings).lower().split("\n")


def _folded_characters(do_lower_case: bool, keep_accents: bool):
    """Yields (character, replacement) where the two differ."""
    chars = [c for c in _characters() if not c.isspace()]
    text = "\n".join(chars)
    if not keep_accents:
        text = combining_pattern().sub("", unicodedata.normalize("NFKD", text))
    if do_lower_case:
        # Other characters (such as 𝚺) also decompose to sigma: hide all from lower().
        text = _SIGMA.join(part.lower() for part in text.split(_SIGMA))
    for char, folded in zip(chars, text.split("\n"), strict=True):
        if char != folded:
            yield char, folded


def _re2_class(chars) -> str:
    """Returns the inside of an RE2 character class for sorted characters."""
    ranges = []
    for code in map(ord, chars):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges)
