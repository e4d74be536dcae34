"""Counts documents whose text was there before, in bounded memory."""

import hashlib
from collections.abc import Iterator

from albert_tf.data.corpus.corpus import RawDocument

# Documents after so many different ones are compared with these only.
MAX_REMEMBERED = 1_000_000
_KEY = 8
_EMPTY = b"\xff" * _KEY


class DuplicateCounter:
    """Passes documents on and counts, or drops, those seen before.

    Args:
        drop: leave repeated documents out.
        max_remembered: how many different documents are remembered.

    Attributes:
        num_duplicates: documents equal to an earlier one.
        num_documents: all documents that came.
        is_complete: whether all documents could be remembered.
    """

    def __init__(self, drop: bool = False, max_remembered: int = MAX_REMEMBERED):
        self._drop = drop
        self._table = _DigestTable(max_remembered)
        self.num_duplicates = 0
        self.num_documents = 0
        self.is_complete = True

    def filter(self, documents: Iterator[RawDocument]) -> Iterator[RawDocument]:
        """Yields the documents that stay."""
        for document in documents:
            self.num_documents += 1
            if self._table.is_known(document_digest(document)):
                self.num_duplicates += 1
                if self._drop:
                    continue
            self.is_complete = not self._table.is_incomplete
            yield document


class _DigestTable:
    """A set of digests whose memory, 16 bytes a digest, is all taken at the start.

    The first 8 bytes stand for a digest: of a million different documents, two have
    the same ones with a probability of 3e-8.
    """

    def __init__(self, capacity: int):
        self._slots = 2 << (capacity - 1).bit_length()  # at most half are used
        self._table = bytearray(_EMPTY) * self._slots
        self._room = capacity
        self.is_incomplete = False  # whether some digest found no room

    def is_known(self, digest: bytes) -> bool:
        """Whether it came before; remembers it if there is room."""
        key = digest[:_KEY]
        slot = int.from_bytes(key, "little") % self._slots
        while (there := self._table[_KEY * slot : _KEY * slot + _KEY]) != _EMPTY:
            if there == key:
                return True
            slot = (slot + 1) % self._slots
        if self._room:
            self._table[_KEY * slot : _KEY * slot + _KEY] = key
            self._room -= 1
        else:
            self.is_incomplete = True
        return False


def document_digest(document: RawDocument) -> bytes:
    """16 bytes that stand for the text of a document."""
    digest = hashlib.blake2b(digest_size=16)
    for text in document.texts:
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.digest()
