"""The answers of a run over time, from files as they may be."""

import json

import pytest

from albert_tf.reports.samples import Sample, read_samples, sample_tables


def line(step, weights="last", text="a [MASK]", masks=(((("x", 0.5),)),)):
    return {
        "step": step,
        "weights": weights,
        "answers": [{"text": text, "masks": masks}],
    }


def sample(step, weights="last", text="a [MASK]", score=0.5):
    return Sample(step, weights, text, [[("x", score)]])


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
