"""The answers of a run over time, from files as they may be."""

import json

import pytest

from albert_tf.errors import UsageError
from albert_tf.reports.samples import (
    PAIRS,
    PROMPTS,
    Sample,
    read_samples,
    sample_tables,
    split_pair,
    unknown_words,
)
from tests.text import kinds


def line(step, weights="last", text="a [MASK]", masks=(((("x", 0.5),)),)):
    return {
        "step": step,
        "weights": weights,
        "answers": [{"text": text, "masks": masks}],
    }


def sample(step, weights="last", text="a [MASK]", score=0.5):
    return Sample(step, weights, text, [[("x", score)]])


@pytest.mark.parametrize(
    "pair", ["a [MASK]", "a [MASK] | b", "[MASK] a [MASK] | [MASK]"]
)
def test_a_pair_has_two_sentences_with_a_mask_each(pair):
    with pytest.raises(UsageError, match="--sample_pairs must be two sentences with"):
        split_pair(pair)


def test_vocabularies_that_know_the_words_of_the_pairs():
    english = kinds.ALL["lower"]
    for pair in PAIRS:
        assert len(split_pair(pair)) == 2
        assert unknown_words(pair, english, whole=True) == []
    assert unknown_words(PROMPTS[0], english, whole=True) == []
    # Pieces of a word do for a person's own pairs, unknown tokens never do.
    word = "krankenschwester"
    assert unknown_words(f"die {word} [MASK] .", english, whole=True) == [word]
    assert unknown_words(f"die {word} [MASK] .", english, whole=False) == []
    assert unknown_words("die 車 [MASK]", english, whole=False) == ["車"]
    assert len(unknown_words(PAIRS[0], kinds.ALL["bpe"], whole=True)) > 2


def test_what_can_be_read_is(tmp_path):
    assert read_samples(str(tmp_path)) == []
    bad = [
        *(7, [], line("7"), line(True), line(3, "ema"), line(3, []), line(3, text=4)),
        *(line(3, masks=8), line(3, masks=[[["x"]]]), line(3, masks=[[["x", "y"]]])),
        *(line(3, masks=[[["x", 10**400]]]), line(3, masks=None)),
        {"step": 3, "weights": "last", "answers": [5, {}]},
        {"step": 3, "weights": "last"},
    ]
    text = "".join(json.dumps(x) + "\n" for x in [*bad, line(2), line(2, "average")])
    (tmp_path / "samples.jsonl").write_text(text + '{"step": 9, "wei')
    assert read_samples(str(tmp_path)) == [sample(2), sample(2, "average")]


@pytest.mark.parametrize("count", [1, 9, 10, 1000])
def test_first_some_and_last(count):
    steps = [10 * n for n in range(1, count + 1)]
    (table,) = sample_tables({"a": [sample(step) for step in steps]})
    assert (table.caption, table.names) == ("a [MASK]", ["step", "answers"])
    shown = [row[0] for row in table.rows]
    assert len(shown) == min(count, 9) and set(shown) <= set(steps)
    assert (shown[0], shown[-1]) == (steps[0], steps[-1])
    assert shown == sorted(set(shown))
    assert {row[1] for row in table.rows} == {"x 50.0%"}


def test_runs_and_weights_are_named_where_they_differ():
    one = [sample(2), sample(2, "average"), sample(4, text="b [MASK]")]
    other = [sample(3, score=0.25)]
    first, second = sample_tables({"a": one, "b": other, "empty": []})
    assert first.names == ["run", "step", "weights", "answers"]
    assert first.rows == [
        ["a", 2, "last", "x 50.0%"],
        ["a", 2, "averaged", "x 50.0%"],
        ["b", 3, "last", "x 25.0%"],
    ]
    assert (second.caption, second.rows) == ("b [MASK]", [["a", 4, "last", "x 50.0%"]])
    assert sample_tables({"empty": []}) == []
