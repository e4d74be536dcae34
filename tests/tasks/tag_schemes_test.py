"""Tags of all schemes become IOB2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.errors import DataError
from albert_tf.tasks.tag_schemes import mark_entities, to_iob2


def convert(*sentences):
    rows = [row.split() for row in sentences]
    found, note = to_iob2(rows, lambda i, j: f"file: line {i}.{j}")
    return [" ".join(row) for row in found], note


CASES = {
    # Two entities of one type: the second starts with B-.
    "IOB1": ("I-A I-A B-A O I-B I-A", "B-A I-A B-A O B-B B-A", "IOB1"),
    "IOB2": ("B-A I-A B-A O B-B B-A", "B-A I-A B-A O B-B B-A", ""),
    "orphan": ("B-A O I-A I-A", "B-A O B-A I-A", "start an entity are read as B- (1"),
    "other type": ("B-A I-B I-B", "B-A B-B I-B", "(1 of them)"),
    "IOBES": ("S-A B-A I-A E-A S-B O", "B-A B-A I-A I-A B-B O", "IOBES"),
    "after end": ("B-A E-A I-A E-A", "B-A I-A B-A I-A", "IOBES"),
    "BILOU": ("U-A B-A I-A L-A O", "B-A B-A I-A I-A O", "BILOU"),
    "untyped": ("B I O I", "B I O B", "(1 of them)"),
    "hyphens": ("B-a-b I-a-b", "B-a-b I-a-b", ""),
    "parts of speech": ("DT NN S B X", "DT NN S B X", ""),
    "outside": ("O O", "O O", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_conversion(name):
    tags, wanted, note = CASES[name]
    found, said = convert(tags)
    assert found == [wanted]
    assert note in said and bool(note) == bool(said)
    assert convert(wanted) == ([wanted], "")


def test_sentences_are_apart():
    found, _ = convert("B-A", "I-A I-A")
    assert found == ["B-A", "B-A I-A"]


@pytest.mark.parametrize("bad", ["X-A", "b-A", "B-", "BA", "0"])
def test_other_tags_among_entities(bad):
    with pytest.raises(DataError, match=rf"file: line 1\.2: .* received '{bad}'"):
        convert("O B-A", f"O I-A {bad}")


def test_what_marks_entities():
    assert mark_entities(["O", "B-PER"]) and mark_entities("BIO")
    assert not mark_entities(["O"]) and not mark_entities(["NN", "B", "I"])


@given(st.lists(st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"]), max_size=9))
def test_the_result_has_the_entities_that_conlleval_reads(tags):
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    (found,), _ = to_iob2([tags], str)
    assert seqeval.get_entities(found) == seqeval.get_entities(tags)
