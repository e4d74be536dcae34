"""Counts documents whose text was there before, in bounded memory."""

import hashlib
from collections.abc import Iterator

from albert_tf.data.corpus import RawDocument

# About 150 MB of digests. Documents after these are compared with these only.
MAX_REMEMBERED = 1_000_000


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
        self._max = max_remembered
        self._seen: set[bytes] = set()
        self.num_duplicates = 0
        self.num_documents = 0
        self.is_complete = True

    def filter(self, documents: Iterator[RawDocument]) -> Iterator[RawDocument]:
        """Yields the documents that stay."""
        for document in documents:
            self.num_documents += 1
            key = document_digest(document)
            if key in self._seen:
                self.num_duplicates += 1
                if self._drop:
                    continue
            elif len(self._seen) < self._max:
                self._seen.add(key)
            else:
                self.is_complete = False
            yield document


def document_digest(document: RawDocument) -> bytes:
    """16 bytes that stand for the text of a document."""
    digest = hashlib.blake2b(digest_size=16)
    for text in document.texts:
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.digest()
