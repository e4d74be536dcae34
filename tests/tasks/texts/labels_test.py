"""Labels travel by name."""

import pytest

from albert_tf.errors import DataError
from albert_tf.tasks.texts.glue import LABEL_ALIASES
from albert_tf.tasks.texts.labels import choose_head, is_generic, match_labels

ORIGINAL = ("contradiction", "entailment", "neutral")
HUGGING_FACE = ("entailment", "neutral", "contradiction")


def test_the_models_order_is_kept():
    same = match_labels(ORIGINAL, ORIGINAL)
    assert (same.labels, same.note) == (ORIGINAL, "")
    other = match_labels(HUGGING_FACE, ORIGINAL, model_name="m")
    assert other.labels == HUGGING_FACE
    assert "m: the model's order is kept: entailment, neutral" in other.note


def test_other_names_are_refused():
    message = "m: its labels are a, b, but those of d are a, c; the same names"
    with pytest.raises(DataError, match=message):
        match_labels("ab", "ac", model_name="m", data_name="d")
    for model, data in (("ab", "abc"), ("abc", "ab"), ("Ab", "ab")):
        with pytest.raises(DataError, match="the same names"):
            match_labels(model, data)
    with pytest.raises(DataError, match="m: a label name occurs twice: a, a"):
        match_labels("aa", "ab", model_name="m")


def test_models_without_names_take_the_tasks_order():
    for model in (None, (), ("LABEL_0", "LABEL_1", "LABEL_2")):
        match = match_labels(model, ORIGINAL, num_labels=3, model_name="m")
        assert match.labels == ORIGINAL
        assert "m does not name its labels" in match.note
        assert "contradiction, entailment, neutral" in match.note
    with pytest.raises(DataError, match="expected 3 labels, .* a head for 2"):
        match_labels(("LABEL_0", "LABEL_1"), ORIGINAL)
    with pytest.raises(DataError, match="a head for 4"):
        match_labels(None, ORIGINAL, num_labels=4)
    assert not is_generic(("LABEL_1", "LABEL_0"))
    # Data may really use such names.
    assert match_labels(("LABEL_0", "LABEL_1"), ("LABEL_1", "LABEL_0")).note


def test_known_other_names_are_mapped():
    match = match_labels(
        ("positive", "negative"), ("0", "1"), aliases=LABEL_ALIASES["sst2"]
    )
    assert match.labels == ("1", "0")
    assert "positive, negative are read as 1, 0" in match.note


def choose(model_labels, labels=ORIGINAL, **kwargs):
    defaults = {
        "task": "mnli",
        "labels": labels,
        "problem_type": "single_label_classification",
        "head": "text_classifier",
        "model_head": "text_classifier",
        "model_labels": model_labels,
    }
    return choose_head(**(defaults | kwargs))


def test_training_starts_from_a_head_of_the_same_labels():
    choice = choose(HUGGING_FACE)
    assert choice.keep and choice.labels == HUGGING_FACE and choice.note
    assert choose(ORIGINAL, model_task="mnli") == choose(ORIGINAL)
    assert not choose(ORIGINAL).note


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"task": "rte", "labels": ("entailment", "not_entailment")},
            "new one for rte: it is for the labels contradiction, entailment, neutral",
        ),
        ({"task": "stsb", "labels": (), "problem_type": "regression"}, "for stsb: it"),
        ({"model_task": "snli"}, "it was trained on snli"),
        ({"model_labels": None}, "does not name its labels"),
        (
            {"model_problem_type": "multi_label_classification"},
            "it is for multi label classification",
        ),
        ({"labels": (), "model_labels": None}, "does not say what its output means"),
    ],
)
def test_another_task_keeps_the_encoder_and_says_so(arguments, reason):
    choice = choose(**({"model_labels": ORIGINAL} | arguments))
    assert not choice.keep
    assert "the encoder is kept, its head is replaced" in choice.note
    assert reason in choice.note


def test_pretrained_models_have_nothing_to_lose():
    choice = choose(None, model_head="pretraining")
    assert not choice.keep and not choice.note and choice.labels == ORIGINAL


def test_scores_keep_the_head_of_the_same_task():
    regression = {"labels": (), "problem_type": "regression", "task": "stsb"}
    assert choose(None, model_task="stsb", **regression).keep
    assert choose(None, model_problem_type="regression", **regression).keep
