"""Rules are read, written and checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.errors import UsageError
from albert_tf.models.exit_rules import KINDS, ExitRule, check_exit


@given(st.sampled_from(KINDS), st.floats(0, 1e6), st.integers(1, 99))
def test_a_rule_is_what_it_is_written_as(kind, threshold, count):
    rule = ExitRule(kind, threshold if kind == "entropy" else count)
    assert ExitRule.parse(str(rule)) == rule == ExitRule.parse(rule)


@given(st.text())
def test_any_text_is_a_rule_or_refused(text):
    try:
        rule = ExitRule.parse(text)
    except UsageError as e:
        assert "exit: " in str(e)
    else:
        assert rule.kind == text.partition(":")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected entropy:H .*, received ''"),
        ("entropy", "expected entropy:H .*, received 'entropy'"),
        ("entropy:x", "expected entropy:H .*, received 'entropy:x'"),
        ("entropy:-1", "entropy must be a number of at least 0, received -1.0"),
        ("entropy:nan", "entropy must be a number of at least 0, received nan"),
        ("patience:0", "patience must be a positive integer, received 0"),
        ("patience:1.5", "received 'patience:1.5'"),
        ("layers:-2", "layers must be a positive integer, received -2"),
        ("depth:3", "received 'depth:3'"),
    ],
)
def test_refused(text, message):
    with pytest.raises(UsageError, match=message):
        ExitRule.parse(text)


@pytest.mark.parametrize(
    ("rule", "problem_type", "message"),
    [
        ("layers:6", "regression", "layers must be from 1 to 5 .* received 6"),
        ("patience:5", "multi_label_classification", "patience must be from 1 to 4 "),
        ("patience:2", "regression", "patience compares labels, .* regression"),
        ("entropy:1", "regression", "entropy needs probabilities"),
        ("entropy:1", "multi_label_classification", "entropy needs probabilities"),
    ],
)
def test_models_that_cannot_follow(rule, problem_type, message):
    with pytest.raises(UsageError, match=message):
        ExitRule.parse(rule).check(5, problem_type)


def test_flags():
    assert check_exit(None, "") is None
    assert check_exit("layers:2", "") == ExitRule("layers", 2)
    with pytest.raises(UsageError, match="exit: exits_curve compares"):
        check_exit("layers:2", "a.json")
    with pytest.raises(UsageError, match=r"exits_curve: expected a name with .json"):
        check_exit(None, "a.png")
