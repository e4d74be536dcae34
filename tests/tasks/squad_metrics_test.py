"""Official scores and thresholds of SQuAD."""

import json

import pytest

from albert_tf.errors import DataError
from albert_tf.tasks import squad_metrics
from albert_tf.tasks.squad_files import SquadSource
from tests.tiny import GOLDEN

SQUAD = GOLDEN / "squad"
HANDMADE = json.loads((SQUAD / "eval_v2_handmade.json").read_text())
DEV = SquadSource(unanswerable=True).read_file(str(SQUAD / "dev-v2.0.json"))
GOLD = dict(zip(DEV.ids, DEV.labels, strict=True))
PREDICTIONS, NULL = HANDMADE["predictions"], HANDMADE["na_scores"]


def test_scores_of_each_question_are_the_official_ones():
    exact, f1 = squad_metrics.raw_scores(GOLD, PREDICTIONS, unanswerable=True)
    assert exact == HANDMADE["exact_raw"]
    assert f1 == HANDMADE["f1_raw"]


@pytest.mark.parametrize("threshold", HANDMADE["results_by_na_prob_thresh"])
def test_scores_are_the_official_ones(threshold):
    expected = HANDMADE["results_by_na_prob_thresh"][threshold]
    received = squad_metrics.evaluate_v2(GOLD, PREDICTIONS, NULL, float(threshold))
    assert {name: received[name] for name in expected} == expected
    assert received["best_f1_thresh"] == 0.3455
    without = squad_metrics.evaluate_v2(GOLD, PREDICTIONS)
    assert not [name for name in without if name.startswith("best")]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's,\tan a-b!", "cats ab"),
        ("another theatre a", "another theatre"),
        ("“the”", "“ ”"),
        ("the.cat", "thecat"),
        ("a", ""),
    ],
)
def test_answers_are_normalized(text, normal):
    assert squad_metrics.normalize_answer(text) == normal


def test_rules_of_1_1():
    gold = {"a": ["the cat", "dog"], "b": ["x y"], "c": ["the"], "d": ["z"]}
    predictions = {"a": "Dog.", "b": "x", "c": "", "unknown": "u"}
    scores = squad_metrics.evaluate_v1(gold, predictions)
    # c: both empty, exact but without F1; d has no prediction and scores 0.
    assert scores == {"exact_match": 50.0, "f1": 100.0 * (1 + 2 / 3) / 4}
    with pytest.raises(DataError, match="'e': expected a correct answer"):
        squad_metrics.evaluate_v1({"e": []}, {"e": "x"})
    with pytest.raises(DataError, match="expected predictions"):
        squad_metrics.evaluate_v1({}, {})


def test_rules_of_2_0():
    gold = {"a": ["the"], "b": ["x"], "c": [], "d": ["y"]}
    scores = squad_metrics.evaluate_v2(gold, {"a": "", "b": "", "c": "u"})
    # a: its answer has no words, so "" is right; d leaves the denominator.
    assert scores["total"] == 3 and scores["exact"] == scores["f1"] == 100 / 3
    assert scores["HasAns_total"] == 2 and scores["HasAns_f1"] == 50.0
    assert scores["NoAns_total"] == 1 and scores["NoAns_exact"] == 0.0
    assert "NoAns_f1" not in squad_metrics.evaluate_v2({"b": ["x"]}, {"b": "x"})
    with pytest.raises(DataError, match="expected predictions"):
        squad_metrics.evaluate_v2(gold, {})


def test_the_calibrated_threshold_is_the_best():
    threshold = squad_metrics.calibrate_threshold(GOLD, PREDICTIONS, NULL)
    best = squad_metrics.evaluate_v2(GOLD, PREDICTIONS, NULL)["best_f1"]
    written = {n: t if NULL[n] <= threshold else "" for n, t in PREDICTIONS.items()}
    f1 = squad_metrics.evaluate_v2(GOLD, written)["f1"]
    assert f1 == pytest.approx(best, abs=1e-12)
    above = min(value for value in NULL.values() if value > 0.3455)
    assert threshold == pytest.approx((0.3455 + above) / 2)


@pytest.mark.parametrize(
    ("gold", "null", "expected"),
    [
        # Nothing should be answered; everything should be.
        ({"a": [], "b": []}, {"a": -1.0, "b": 2.0}, 0),
        ({"a": ["x"], "b": ["x"]}, {"a": -1.0, "b": 2.0}, 2),
        # Equal scores are answered together or not at all.
        ({"a": ["x"], "b": [], "c": []}, {"a": 1.0, "b": 1.0, "c": 1.0}, 0),
        ({"a": ["x"], "b": ["x"], "c": []}, {"a": 1.0, "b": 1.0, "c": 1.0}, 3),
        ({"a": ["x"], "b": []}, {"a": 1.0, "b": 1.0000000000000002}, 1),
    ],
)
def test_thresholds_at_the_ends(gold, null, expected):
    predictions = dict.fromkeys(gold, "x")
    threshold = squad_metrics.calibrate_threshold(gold, predictions, null)
    assert sum(value <= threshold for value in null.values()) == expected
    with pytest.raises(DataError, match="choose the threshold"):
        squad_metrics.calibrate_threshold({"a": ["x"]}, {"a": "x"}, {})
