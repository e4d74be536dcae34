"""Stopping early gives what the layers would have given, for each row by itself."""

import functools

import keras
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from albert_tf.errors import UsageError
from albert_tf.models import exit_rules
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier, AlbertTokenClassifier
from albert_tf.models.exit_rules import ExitRule, check_exit
from albert_tf.models.exits import ElasticClassifier
from tests import exits

RULES = st.one_of(
    st.tuples(st.just("layers"), st.integers(1, exits.LAYERS)),
    st.tuples(st.just("patience"), st.integers(1, exits.LAYERS - 1)),
    st.tuples(st.just("entropy"), st.floats(0, 1.1)),
)
KINDS = ("single_label_classification", "multi_label_classification")


@functools.cache
def model_of(kind):
    model = exits.make_model()
    model.problem_type = kind
    return model


@pytest.fixture(scope="module")
def model():
    return model_of("single_label_classification")


def run(model, rule, inputs, **kwargs):
    outputs = ElasticClassifier(model, rule)(inputs, **kwargs)
    return [keras.ops.convert_to_numpy(outputs[k]) for k in ("logits", "num_layers")]


@given(
    kind=st.sampled_from(KINDS),
    rule=RULES,
    rows=st.integers(0, 6),
    seed=st.integers(0, 9),
)
@settings(max_examples=12)
def test_rows_stop_where_the_rule_says(kind, rule, rows, seed):
    """A batch that shrinks gives what all layers of all rows give."""
    multi_label = kind == "multi_label_classification"
    assume(not (multi_label and rule[0] == "entropy"))
    model, inputs = model_of(kind), exits.make_inputs(rows, seed)
    logits, layers = run(model, "{}:{}".format(*rule), inputs)
    every = exits.every_logit(model, inputs)
    expected = [exits.stops_after(*rule, x, multi_label) for x in every]
    assert layers.dtype == np.int32 and layers.tolist() == expected
    chosen = every[np.arange(rows), np.array(expected, int) - 1]
    np.testing.assert_allclose(logits, chosen, rtol=1e-5, atol=1e-5)


@given(depths=st.lists(st.integers(1, exits.LAYERS), max_size=7))
@settings(max_examples=4)
def test_each_row_has_the_layers_it_asks_for(depths):
    model = model_of("single_label_classification")
    inputs = exits.make_inputs(len(depths), 3)
    asked = np.array(depths, "int32")
    logits, layers = run(model, "layers:1", inputs, num_layers=asked)
    assert layers.tolist() == depths
    every = exits.every_logit(model, inputs)
    chosen = every[np.arange(len(depths)), asked - 1]
    np.testing.assert_allclose(logits, chosen, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", range(1, exits.LAYERS))
def test_some_layers_are_a_model_with_as_many(model, depth):
    config = exits.CONFIG.replace(num_hidden_layers=depth)
    short = AlbertTextClassifier(config, num_labels=3)
    names = weight_names(model)
    for name, variable in weight_names(short).items():
        of_exit = name.replace("backbone/pooler", f"exit_{depth}/pooler")
        if name.startswith("classifier"):
            of_exit = f"exit_{depth}/{name}"
        variable.assign(names[of_exit])
    inputs = exits.make_inputs(4)
    logits, _ = run(model, f"layers:{depth}", inputs)
    np.testing.assert_allclose(logits, short(inputs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{"inner_group_num": 2}, {"sharing": "none"}, {"num_hidden_groups": 2}]
)
def test_other_architectures(changes):
    config = exits.CONFIG.replace(num_hidden_layers=3, **changes)
    model, inputs = exits.make_model(config=config), exits.make_inputs(5)
    every = exits.every_logit(model, inputs)
    for depth in (1, 2, 3):
        logits, _ = run(model, f"layers:{depth}", inputs)
        np.testing.assert_allclose(logits, every[:, depth - 1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(every[:, -1], model(inputs), rtol=1e-5, atol=1e-5)


def test_the_states_of_packed_rows(model):
    """Training reads the first token of each example, wherever it stands."""
    alone = [exits.make_inputs(1, seed, 5) for seed in (1, 2)]
    ids = np.concatenate([x["token_ids"][0] for x in alone])[None]
    masks = np.concatenate([x["padding_mask"][0] for x in alone])[None]
    packed = {
        "token_ids": ids,
        "padding_mask": masks,
        "pack_ids": np.repeat([1, 2], 5)[None].astype("int32") * masks,
        "position_ids": np.tile(np.arange(5, dtype="int32"), 2)[None],
        "places": np.array([0, 5], "int32"),
    }
    found = exits.every_logit(model, packed)
    expected = np.concatenate([exits.every_logit(model, x) for x in alone])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_refused(model):
    config = exits.CONFIG
    with pytest.raises(UsageError, match="only text classifiers have exits, .*Token"):
        ElasticClassifier(AlbertTokenClassifier(config, num_labels=3), "layers:1")
    with pytest.raises(UsageError, match="has no exits; train some with finetune"):
        ElasticClassifier(AlbertTextClassifier(config), "layers:1")
    with pytest.raises(UsageError, match="layers must be from 1 to 4 .* received 99"):
        ElasticClassifier(model, "layers:99")
    with pytest.raises(ValueError, match="num_exits must be 0 or 3, .* received 2"):
        AlbertTextClassifier(config, num_exits=2)
    with pytest.raises(ValueError, match="rows of one text each"):
        run(model, "layers:1", {**exits.make_inputs(1), "pack_ids": np.ones((1, 7))})


def test_a_model_with_exits_in_a_keras_file(model, tmp_path):
    inputs = exits.make_inputs(2)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    assert again.num_exits == exits.LAYERS - 1
    one, other = (exits.every_logit(m, inputs) for m in (model, again))
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)
    assert "num_exits" not in AlbertTextClassifier(exits.CONFIG).get_config()


@given(st.sampled_from(exit_rules.KINDS), st.floats(0, 1e6), st.integers(1, 99))
def test_a_rule_is_what_it_is_written_as(kind, threshold, count):
    rule = ExitRule(kind, threshold if kind == "entropy" else count)
    assert ExitRule.parse(str(rule)) == rule == ExitRule.parse(rule)


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
def test_refused_rules(text, message):
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
