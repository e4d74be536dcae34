"""Documents as they were read, their sentences, and detection of duplicates.

Sentences are split by `sentencex` (Wikimedia's segmenter for about 300 languages, with
abbreviations by language, unbroken quotes and brackets, and `。！？` without spaces; an
unknown language falls back to a related one, or else to English). It splits about
10 MB of text per second on one core, so that tokenization remains the slower step.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import sentencex

from albert_tf.errors import require

# Later documents are compared only with this many of the first distinct ones.
MAX_REMEMBERED = 1_000_000
DIGEST_BYTES = 8
_EMPTY = b"\xff" * DIGEST_BYTES
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-zA-Z0-9-]+)?")


class RawDocument(NamedTuple):
    """A document as it was read, before it is split into sentences.

    (source, number) identifies it for any number of processes: random choices made for
    a document depend only on these two.
    """

    source: int  # index of the source, from 0
    number: int  # index of the document in its source
    texts: list[str]
    is_split: bool  # whether the texts are already sentences
    piece: int = 0  # index of the piece of a long document that was cut

    @property
    def whole(self) -> tuple[int, int]:
        """Returns the key of the first piece of the same document."""
        return self.source, self.number - self.piece


def document_sentences(document: RawDocument, language: str) -> list[str]:
    """Returns the sentences of a document."""
    if document.is_split:
        return document.texts
    return [
        sentence
        for text in document.texts
        for sentence in split_sentences(text, language)
    ]


def check_language(language: str) -> str:
    """Returns `language`, or raises `UsageError` if it is not a language code."""
    match = _LANGUAGE.fullmatch(language)
    require(match, "language: expected a code such as 'en' or 'zh'", language)
    return language


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Splits a paragraph into sentences by the rules of an ISO 639 language.

    White space, including line breaks, is collapsed to single spaces. Nothing else is
    lost: the joined sentences contain every other character in order. No sentence is
    empty.
    """
    text = " ".join(text.split())
    if not text:
        return []
    sentences = (part.strip() for part in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]


def document_digest(document: RawDocument) -> bytes:
    """Returns a digest of the text of a document, of `DIGEST_BYTES`."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in document.texts:
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.digest()


class DuplicateCounter:
    """Counts documents that were seen before.

    The memory, 16 bytes for each document that can be remembered, is allocated at the
    start. Among a million different documents, two have the same digest with a
    probability of 3e-8.

    Args:
        drop: bool. Whether `filter` leaves out repeated documents.

    Attributes:
        is_complete: bool. Whether all documents could be remembered.
    """

    def __init__(self, drop: bool = False, max_remembered: int = MAX_REMEMBERED):
        self._drop = drop
        self._slots = 2 << (max_remembered - 1).bit_length()  # at most half are used
        self._table = bytearray(_EMPTY) * self._slots
        self._room = max_remembered
        self.num_duplicates = 0
        self.is_complete = True

    def filter(self, documents: Iterator[RawDocument]) -> Iterator[RawDocument]:
        """Counts documents, and yields the ones to keep."""
        for document in documents:
            if self.is_new(document_digest(document)) or not self._drop:
                yield document

    def is_new(self, digest: bytes) -> bool:
        """Returns whether a digest is new; remembers it, or counts the repetition."""
        slot = int.from_bytes(digest, "little") % self._slots
        size = DIGEST_BYTES
        while (present := self._table[size * slot : size * (slot + 1)]) != _EMPTY:
            if present == digest:
                self.num_duplicates += 1
                return False
            slot = (slot + 1) % self._slots
        if self._room:
            self._table[size * slot : size * (slot + 1)] = digest
            self._room -= 1
        else:
            self.is_complete = False
        return True
