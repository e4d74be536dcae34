"""Contestants take turns."""

import pytest

from benchmarks.turns import seconds_in_turns


def test_every_round_calls_every_contestant_once():
    calls = []
    contestants = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = seconds_in_turns(contestants, 3)
    assert calls == ["a", "a", "b", "b", *"ababab"]  # twice to warm up
    assert [len(seconds[name]) for name in "ab"] == [3, 3]
    assert min(seconds["a"] + seconds["b"]) >= 0


def test_a_contestant_that_fails_ends_the_measurement():
    def fail():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        seconds_in_turns({"a": fail}, 1)
