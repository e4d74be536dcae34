"""`MultipleChoice` on a small random model."""

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.multiple_choice import MultipleChoice
from albert_tf.models.classifiers import AlbertMultipleChoice
from albert_tf.tasks import saved
from albert_tf.tasks.registry import find_task
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1)


@pytest.fixture(scope="module")
def choose(tokenizer):
    return MultipleChoice(AlbertMultipleChoice(CONFIG, seed=3), tokenizer)


def same(entry):
    """The same entry, whose score may have been computed in another batch."""
    return entry | {"score": pytest.approx(entry["score"], rel=1e-3)}


def test_choices_are_ranked(choose):
    choices = ["a cat", "a dog", "nothing"]
    ranked = choose("Anna has", choices)
    assert sorted(row["index"] for row in ranked) == [0, 1, 2]
    assert all(choices[row["index"]] == row["choice"] for row in ranked)
    scores = [row["score"] for row in ranked]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    turned = choose("Anna has", choices[::-1])
    assert [row["choice"] for row in turned] == [row["choice"] for row in ranked]


def test_numbers_of_choices_may_differ(choose):
    contexts = ["Anna has", "the " * 5000]
    both = choose(contexts, [["a cat", "a dog"], ["x", "y", ""]], ["", "Why?"])
    alone = choose(contexts[1], ["x", "y", ""], "Why?")
    assert [len(row) for row in both] == [2, 3]
    assert both[1] == [same(row) for row in alone]
    assert choose([], []) == []
    assert choose("", ["only"]) == [{"choice": "only", "index": 0, "score": 1.0}]
    assert choose(b"a", [b"b\xff", "c"])[0]["choice"] in ("b ", "c")


def test_equal_choices(choose):
    assert [row["index"] for row in choose("a", ["b", "b", "b"])] == [0, 1, 2]


def test_blanks_are_filled_for_race(choose, tokenizer, tmp_path):
    model = AlbertMultipleChoice(CONFIG, seed=3)
    model.task = saved.describe(find_task("race"))
    model.task["options"] |= {"max_seq_length": 20, "max_qa_length": 9}
    load.save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    race = albert_tf.MultipleChoice.from_pretrained(tmp_path / "m")
    assert race.options.max_qa_length == 9
    given = ("a", ["cat", "dog"], "Anna has a _ .")
    filled = race("a", ["Anna has a cat .", "Anna has a dog ."])
    scores = [row["score"] for row in race(*given)]
    assert scores == pytest.approx([row["score"] for row in filled])
    assert choose(*given)[0]["score"] != pytest.approx(filled[0]["score"], rel=1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("x", "ab"), "choices must be a list, received str 'ab'"),
        (("x", []), "choices: expected at least one choice"),
        ((["x", "y"], [["a"], []]), r"choices\[1\]: expected at least one choice"),
        ((["x"], ["a"]), r"choices\[0\] must be a list, received str"),
        ((["x", "y"], [["a"]]), "choices: .* contexts, 2, received 1"),
        (("x", ["a"], ["q", "r"]), "question: .* contexts, 1, received 2"),
    ],
)
def test_refuses(choose, given, message):
    with pytest.raises(UsageError, match=message):
        choose(*given)
