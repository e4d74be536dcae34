"""Multiple choice in a SavedModel answers as `MultipleChoice` does in Python."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import row_steps
from albert_tf.inference.multiple_choice import MultipleChoice
from albert_tf.models.classifiers import AlbertMultipleChoice
from tests import tiny
from tests.export import heads


@pytest.fixture(scope="module")
def race(tokenizer):
    return MultipleChoice(heads.make_model("multiple_choice"), tokenizer)


@pytest.fixture(scope="module")
def signatures(race):
    return heads.functions_of(race, race.options.max_seq_length, traced=True)


def check(choose, signatures, contexts, questions, rows):
    """Compares both signatures with Python; `rows` are the choices of each question."""
    width = max(map(len, rows))
    padded = [row + [""] * (width - len(row)) for row in rows]
    inputs = {"context": contexts, "question": questions, "choices": padded}
    inputs = {name: tf.constant(value, tf.string) for name, value in inputs.items()}
    counts = tf.constant([len(row) for row in rows], tf.int32)
    got = signatures["counted"](**inputs, num_choices=counts)
    got = {name: value.numpy() for name, value in got.items()}
    assert got.keys() == {"probabilities", "logits", "index", "choice"}
    expected = choose(contexts, rows, questions)
    for i, ranked in enumerate(expected):
        scores = [row["score"] for row in sorted(ranked, key=lambda r: r["index"])]
        scores += [0] * (width - len(scores))
        np.testing.assert_allclose(got["probabilities"][i], scores, atol=1e-6)
        best = got["index"][i]
        assert scores[best] == pytest.approx(ranked[0]["score"], abs=1e-6)
        chosen = rows[i][best]
        raw = chosen if isinstance(chosen, bytes) else chosen.encode()
        assert got["choice"][i] == raw
        assert (got["logits"][i][len(rows[i]) :] == -1e9).all()
    if all(row[-1] for row in rows):
        default = signatures["serving_default"](**inputs)
        for name, value in default.items():
            np.testing.assert_array_equal(value, got[name])


QUESTIONS = [
    ("Anna has a dog.", "Anna has a _ .", ["cat", "dog", "Émile's  house"]),
    ("the " * 300, "Why?", ["yes", "no " * 40]),
    ("", "", ["only one"]),
    ("a", "_", ["b", "", "c"]),
    ("a", "__ x _", ["b", "b"]),
    ("ΟΔΟΣ", "ΟΔΟΣ＿", ["ΟΔΟΣ", "x\0y", "😀 \u0301"]),
    ("a", "_ " * 30 + "end of it", ["some", "more"]),
    (b"a\xff\xfeb", b"\xc3", [b"\xf0 _", b"_"]),
]


@pytest.mark.slow
def test_equals_python(race, signatures):
    names = {"serving_default", "counted", "tokens", "embed", "embed_layer"}
    assert signatures.keys() == names
    check(race, signatures, *map(list, zip(*QUESTIONS, strict=True)))
    for context, question, choices in QUESTIONS[1:3]:
        check(race, signatures, [context], [question], [choices])


def test_without_a_task_and_byte_bpe(byte_bpe):
    choose = MultipleChoice(AlbertMultipleChoice(tiny.CONFIG, seed=3), byte_bpe)
    signatures = heads.functions_of(choose, choose.options.max_seq_length)
    check(choose, signatures, *map(list, zip(*QUESTIONS, strict=True)))


TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("a _.\0Σ\n"))


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    st.lists(st.tuples(TEXT, TEXT, st.lists(TEXT, min_size=1)), min_size=1, max_size=3)
)
def test_any_text_equals_python(race, signatures, rows):
    check(race, signatures, *map(list, zip(*rows, strict=True)))


def test_tokens(race, signatures, tokenizer):
    rows = [
        [2, *tokenizer.encode("anna has"), 3, *tokenizer.encode(choice), 3]
        for choice in ("a cat", "dogs")
    ]
    first = len(tokenizer.encode("anna has")) + 2
    width = max(map(len, rows)) + 3
    got = signatures["tokens"](
        token_ids=tf.constant([[row + [9] * (width - len(row)) for row in rows]] * 2),
        lengths=tf.constant([[*map(len, rows)], [len(rows[0]), 0]], tf.int32),
        segment_ids=tf.constant([[[0] * first + [1] * (width - first)] * 2] * 2),
    )
    expected = race("anna has", ["a cat", "dogs"])
    scores = [row["score"] for row in sorted(expected, key=lambda r: r["index"])]
    np.testing.assert_allclose(got["probabilities"], [scores, [1, 0]], atol=1e-6)
    assert got["index"].numpy().tolist() == [expected[0]["index"], 0]
    assert got.keys() == {"probabilities", "logits", "index"}


def test_a_bad_row_does_not_harm_its_mates(race, signatures):
    huge = [b"_" * 300_000, b"word " * 100_000, b"\xff" * 100_000, b""]
    good = [b"Anna has _ .", b"a dog", b"b"]
    rows = [good, *([text] * 3 for text in huge), good]
    inputs = {
        "context": tf.constant([row[0] for row in rows]),
        "question": tf.constant([row[0] for row in rows]),
        "choices": tf.constant([row[1:] for row in rows]),
    }
    for counts in ([2] * 6, [2, -5, 0, 99, 2, 2]):
        got = signatures["counted"](**inputs, num_choices=tf.constant(counts))
        assert np.isfinite(got["probabilities"]).all()
        ranked = race("Anna has _ .", ["a dog", "b"], "Anna has _ .")
        for i in (0, 5):
            best = got["probabilities"][i].numpy().max()
            assert best == pytest.approx(ranked[0]["score"], abs=1e-6)
            assert got["index"][i] == ranked[0]["index"]


def test_many_choices_are_scored_in_steps(race, signatures):
    choices = [f"choice {i}" for i in range(2 * row_steps.ROWS + 1)]
    check(race, signatures, ["Anna"], ["which _ is it"], [choices])


def test_nothing(signatures):
    ask = signatures["serving_default"]
    none = tf.constant([], tf.string)
    got = ask(context=none, question=none, choices=tf.zeros([0, 3], tf.string))
    assert got["probabilities"].shape == (0, 3)
    one = {"context": tf.constant(["a"]), "question": tf.constant(["b"])}
    got = ask(**one, choices=tf.constant([["", ""]]))
    np.testing.assert_array_equal(got["probabilities"], [[1, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one choice"):
        ask(**one, choices=tf.zeros([1, 0], tf.string))
