"""Schemes of tags become IOB2; metrics of entities, lenient, strict and by type."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import iob
from albert_tf.tasks.iob import to_iob2

pytest.importorskip("seqeval")


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
    "underscore": ("B_A I_A O", "B-A I-A O", "such as 'B_A' are read as 'B-A'"),
    "suffix": ("A-B A-I O c-a-S", "B-A I-A O B-c-a", "'A-B' are read as 'B-A'; "),
    "lower case": ("b-A i-A o", "B-A I-A O", "'b-A' are read as 'B-A'"),
    "lower case, untyped": ("b i o", "B I O", "'b' are read as 'B'"),
    "empty type": ("B- I- O", "B I O", "'B-' are read as 'B'"),
    "dash": ("B–A I–A O", "B-A I-A O", "'B–A' are read as 'B-A'"),
    "types": ("AA AA O BB", "B-AA I-AA O B-BB", "'AA' are read as 'I-AA'; "),
    "one letter": ("N V O", "N V O", ""),
    "spelled and not": ("B_A CC O", "B_A CC O", ""),
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


_TAGS = ["O", *(f"{prefix}-{kind}" for kind in "ab" for prefix in "BIESLU")]


@given(st.lists(st.sampled_from(_TAGS), max_size=9))
@example(["B-a", "L-a", "B-a", "L-a", "U-a", "U-a"])
def test_the_result_has_the_entities_that_conlleval_reads(tags):
    (found,), _ = to_iob2([tags], str)
    assert iob.entities(found) == iob.entities(tags)


def rows(*texts):
    return [text.split() for text in texts]


def test_lenient_and_strict_differ():
    """conlleval reads an entity that starts with I-, strict IOB2 does not."""
    labels = rows("B-A I-A O", "B-B O")
    values = iob.entity_metrics(labels, rows("I-A I-A O", "B-B O"))
    strict = {"precision_strict": 1.0, "recall_strict": 0.5, "accuracy": 0.8}
    strict["f1_strict"] = pytest.approx(2 / 3)
    assert values == {"f1": 1.0, "precision": 1.0, "recall": 1.0, **strict}
    # Sentences stay apart: flattened, the two entities predicted would be one.
    values = iob.entity_metrics(rows("O B-A", "B-A O"), rows("O B-A", "I-A O"))
    assert values["f1"] == 1.0


def test_counts():
    labels = rows("B-A O B-B I-B", "B-A O O O")
    predictions = rows("B-A O B-B O", "B-B O B-A O")
    values = iob.entity_metrics(labels, predictions)
    assert values["precision"] == 0.25
    assert values["recall"] == pytest.approx(1 / 3)
    assert values["f1"] == pytest.approx(2 / 7)
    assert iob.per_type(labels, predictions) == [
        {"label": "A", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2},
        {"label": "B", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
    ]


@pytest.mark.parametrize("labels", ["O O", "B-A O"])
def test_no_entity_is_no_warning(labels):
    values = iob.entity_metrics(rows(labels), rows("O O"))
    assert values["f1"] == values["f1_strict"] == 0.0
    assert iob.per_type(rows("O O"), rows("O O")) == []


def test_distinct_entities():
    tokens = rows("Rome Rome Oslo Lee", "Rome New York .")
    labels = rows("B-L B-L B-L B-P", "B-L B-L I-L O")
    predictions = rows("B-L O O B-L", "O B-L I-L O")
    # Known: Rome, Oslo, New York and Lee (P). Predicted: Rome, New York and Lee (L).
    value = iob.surface_f1(tokens, labels, predictions)
    assert value == pytest.approx(2 * 2 / (4 + 3))
    assert iob.surface_f1(tokens, rows("O O O O") * 2, predictions) == 0
    assert iob.surface_f1([["a"]], [["O"]], [["O"]]) == 0


def test_word_metrics():
    values = iob.word_metrics(rows("N V", "N"), rows("N N", "N"))
    assert values["accuracy"] == pytest.approx(2 / 3)
    assert values["f1"] == pytest.approx(0.8 / 2)


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([], []), ([[]], [[]]), (rows("O O"), rows("O")), (rows("O"), rows("O", "O"))],
)
def test_other_lengths(labels, predictions):
    for metrics in (iob.entity_metrics, iob.word_metrics):
        with pytest.raises(DataError, match="as many tags"):
            metrics(labels, predictions)


def test_without_seqeval(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(UsageError, match="pip install seqeval==1.2.2"):
        iob.entity_metrics([["O"]], [["O"]])
