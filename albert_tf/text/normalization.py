"""What the original does to text before SentencePiece sees it.

`normalize_text` is the definition (the original's `preprocess_text`); the tables below
are derived from it, so that the in-graph tokenizer needs no Unicode library of its own
and follows the same Unicode version as the running Python.

1. Runs of white space (Python's `str.split`) become one space; both ends are stripped.
2. NFKD, then characters with a non-zero canonical combining class are dropped. The
   class is not the category: U+20E3 (combining enclosing keycap) has class 0 and stays.
3. Lower case, with Python's full mapping (final sigma included).
"""

import codecs
import functools
import re
import sys
import unicodedata

import numpy as np

_SIGMA, _SMALL_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c3", "\u03c2"
_SPACE_ON_ERROR = "albert_tf_space"
_SURROGATES = re.compile("[\ud800-\udfff]")
IDENTITY = 0  # first row of a `CharacterTable`: the character stays what it is
PAGE_SIZE = 256

# One invalid byte must neither raise nor hide what follows it; as a space, it also
# cannot glue two words together.
codecs.register_error(_SPACE_ON_ERROR, lambda error: (" ", error.end))


def to_unicode(text: str | bytes) -> str:
    """Text as `str` without lone surrogates; what is not UTF-8 becomes spaces."""
    if isinstance(text, bytes):
        return text.decode("utf-8", _SPACE_ON_ERROR)
    return text if text.isascii() else _SURROGATES.sub(" ", text)


def normalize_text(
    text: str | bytes, do_lower_case: bool = True, keep_accents: bool = False
) -> str:
    """The original's `preprocess_text`.

    Args:
        text: Any string, or UTF-8 bytes (what is not UTF-8 becomes spaces).
        do_lower_case: Whether step 3 is done.
        keep_accents: Whether step 2 is left out (Hugging Face's option of that name).

    Returns:
        The text as SentencePiece is to see it.
    """
    text = " ".join(to_unicode(text).split())
    if not (keep_accents or text.isascii()):
        text = unicodedata.normalize("NFKD", text)
        if not text.isascii():
            text = combining_pattern().sub("", text)
    return text.lower() if do_lower_case else text


class CharacterTable:
    """What each code point becomes, for code that has no Python strings.

    Row `row_of[pages[c // PAGE_SIZE] * PAGE_SIZE + c % PAGE_SIZE]` of the ragged table
    (`values`, `splits`) holds the code points that replace `c`; row 0 is `[-1]` and
    means `c` itself. White space is left alone, and capital sigma too: its lower case
    depends on its neighbours (`final_sigma_pattern`).

    Attributes:
        pages: int32 `[0x1100]`.
        row_of: int32 `[number of distinct pages * PAGE_SIZE]`.
        values: int32, the rows one after another.
        splits: int64 `[rows + 1]`.
    """

    def __init__(self, do_lower_case: bool, keep_accents: bool):
        rows = {(-1,): IDENTITY}
        row_of = np.zeros(sys.maxunicode + 1, np.int32)
        for char, folded in _folded_characters(do_lower_case, keep_accents):
            key = tuple(map(ord, folded))
            row_of[ord(char)] = rows.setdefault(key, len(rows))
        distinct, pages = np.unique(
            row_of.reshape(-1, PAGE_SIZE), axis=0, return_inverse=True
        )
        self.pages = pages.reshape(-1).astype(np.int32)
        self.row_of = distinct.reshape(-1).astype(np.int32)
        self.values = np.array([c for row in rows for c in row], np.int32)
        self.splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)


@functools.lru_cache
def character_table(do_lower_case: bool, keep_accents: bool) -> CharacterTable:
    """The `CharacterTable` of these options, made once (about a second)."""
    return CharacterTable(do_lower_case, keep_accents)


@functools.lru_cache
def white_space_pattern() -> str:
    """RE2 pattern of one run of the characters at which `str.split` splits."""
    return f"[{_re2_class(c for c in _characters() if c.isspace())}]+"


@functools.lru_cache
def final_sigma_pattern() -> str:
    r"""RE2 pattern of a capital sigma that ends a word; replace by `\1ς\2`.

    Unicode's Final_Sigma: a cased letter before it and none after it, whatever
    case-ignorable characters stand between. Which characters those are is asked of
    `str.lower` itself.
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
    """Matches a character with a non-zero canonical combining class."""
    chars = (chr(c) for c in range(0x300, 0x30000))  # all assigned ones are there
    return re.compile(f"[{''.join(c for c in chars if unicodedata.combining(c))}]")


@functools.lru_cache
def _characters() -> list[str]:
    """Those that any rule here can concern: planes 0, 1, 2 and 14, no surrogates.

    The rest is ideographs without decomposition, unassigned or private.
    """
    codes = (range(0xD800), range(0xE000, 0x30000), range(0xE0000, 0xF0000))
    return [chr(c) for part in codes for c in part]


def _lowered(strings) -> list[str]:
    # One call for all: a line break is neither cased nor case-ignorable.
    return "\n".join(strings).lower().split("\n")


def _folded_characters(do_lower_case: bool, keep_accents: bool):
    """Yields (character, what it becomes) where the two differ."""
    chars = [c for c in _characters() if not c.isspace()]
    text = "\n".join(chars)
    if not keep_accents:
        text = combining_pattern().sub("", unicodedata.normalize("NFKD", text))
    if do_lower_case:
        # Sigmas come from several characters (also 𝚺), so hide them all from lower().
        text = _SIGMA.join(part.lower() for part in text.split(_SIGMA))
    for char, folded in zip(chars, text.split("\n"), strict=True):
        if char != folded:
            yield char, folded


def _re2_class(chars) -> str:
    """The inside of an RE2 character class, given characters in order."""
    ranges = []
    for code in map(ord, chars):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges)
