"""Counts documents whose text was already seen, in bounded memory."""

import hashlib
from collections.abc import Iterator

from albert_tf.data.corpus.corpus import RawDocument

# Later documents are compared only with the first different ones up to this number.
MAX_REMEMBERED = 1_000_000
_KEY = 8
_EMPTY = b"\xff" * _KEY


class DuplicateCounter:
    """Passes documents on and counts, or drops, those seen before.

    Args:
        drop: bool. Whether to leave out repeated documents.
        max_remembered: int. Maximum number of different documents to remember.

    Attributes:
        num_duplicates: int. Number of documents equal to an earlier one.
        num_documents: int. Number of all documents.
        is_complete: bool. Whether all documents could be remembered.
    """

    def __init__(self, drop: bool = False, max_remembered: int = MAX_REMEMBERED):
        self._drop = drop
        self._table = _DigestTable(max_remembered)
        self.num_duplicates = 0
        self.num_documents = 0
        self.is_complete = True

    def filter(self, documents: Iterator[RawDocument]) -> Iterator[RawDocument]:
        """Yields the documents to keep."""
        for document in documents:
            self.num_documents += 1
            if self._table.is_known(document_digest(document)):
                self.num_duplicates += 1
                if self._drop:
                    continue
            self.is_complete = not self._table.is_incomplete
            yield document


class _DigestTable:
    """A set of digests whose memory, 16 bytes per digest, is allocated at the start.

    Only the first 8 bytes of a digest are kept: among a million different documents,
    two agree in them with a probability of 3e-8.
    """

    def __init__(self, capacity: int):
        self._slots = 2 << (capacity - 1).bit_length()  # at most half are used
        self._table = bytearray(_EMPTY) * self._slots
        self._room = capacity
        self.is_incomplete = False  # whether some digest found no room

    def is_known(self, digest: bytes) -> bool:
        """Returns whether a digest was seen before; remembers it if there is room."""
        key = digest[:_KEY]
        slot = int.from_bytes(key, "little") % self._slots
        while (present := self._table[_KEY * slot : _KEY * slot + _KEY]) != _EMPTY:
            if present == key:
                return True
            slot = (slot + 1) % self._slots
        if self._room:
            self._table[_KEY * slot : _KEY * slot + _KEY] = key
            self._room -= 1
        else:
            self.is_incomplete = True
        return False


def document_digest(document: RawDocument) -> bytes:
    """Returns a digest of 16 bytes of the text of a document."""
    digest = hashlib.blake2b(digest_size=16)
    for text in document.texts:
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.digest()
