"""Repeated documents are counted in memory that does not grow."""

from albert_tf.data.corpus.corpus import RawDocument
from albert_tf.data.corpus.duplicates import DuplicateCounter


def _documents(names):
    return [RawDocument(0, k, [name, "x"], True) for k, name in enumerate(names)]


def _kept(counter, names):
    return [document.texts[0] for document in counter.filter(_documents(names))]


def test_counts_and_drops():
    names = [str(k % 300) for k in range(700)]
    counter = DuplicateCounter()
    assert _kept(counter, names) == names
    assert (counter.num_documents, counter.num_duplicates) == (700, 400)
    assert counter.is_complete
    assert _kept(DuplicateCounter(drop=True), names) == names[:300]


def test_what_is_said_beyond_its_capacity():
    counter = DuplicateCounter(drop=True, max_remembered=5)
    names = [str(k) for k in range(9)]
    assert _kept(counter, names + names) == names + names[5:]
    assert counter.num_duplicates == 5
    assert not counter.is_complete
    # A repeated document alone needs no room.
    counter = DuplicateCounter(max_remembered=5)
    assert len(_kept(counter, names[:5] + names[:5])) == 10
    assert counter.is_complete
