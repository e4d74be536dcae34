"""A grown model computes in its first layers what the smaller one computed."""

import numpy as np
import pytest

from albert_tf.converters.growing import grow
from albert_tf.converters.keras_model import build_model, from_model
from albert_tf.errors import DataError, UsageError
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from tests import tiny

TOKENS = np.array([[2, 13, 17, 5, 3], [2, 4, 9, 23, 3]])
SMALL = tiny.CONFIG.replace(
    vocab_size=29, embedding_size=6, num_hidden_layers=3, num_hidden_groups=1
)
BERT = {"sharing": "none", "embedding_size": 12}
OWN, KEY = {"depth_rank": 2}, {"depth_matrices": ("key",)}
GROUPS = {"num_hidden_groups": 3}


def hidden_states(model):
    backbone = getattr(model, "backbone", model)
    outputs = backbone({"token_ids": TOKENS}, output_hidden_states=True)
    return [np.asarray(state) for state in outputs["hidden_states"]]


def random_model(config, kind=AlbertBackbone):
    """A model with other weights than zero.

    Layer norms begin as 1 and 0, so that wrong copies of them would not be noticed.
    """
    model = kind(config, seed=3)
    rng = np.random.default_rng(5)
    model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
    return model


def grown(small, kind=AlbertBackbone, **changes):
    """A model of the small config, and a larger one."""
    model, larger = random_model(small, kind), small.replace(**changes)
    larger = build_model(grow(from_model(model), larger))
    assert type(larger) is kind and not larger.untrained_weights
    return model, larger


@pytest.mark.parametrize(
    "small, changes",
    [
        ({}, {"num_hidden_layers": 7}),
        ({"sharing": "none"}, {"num_hidden_layers": 8}),
        ({"sharing": "ffn"}, {"num_hidden_layers": 6, "sharing": "none"}),
        ({}, GROUPS),
        ({}, {"num_hidden_layers": 6, "num_hidden_groups": 2}),
        (GROUPS, {"num_hidden_layers": 6, "num_hidden_groups": 6}),
        ({}, {"sharing": "attention", "share_layer_norm": False}),
        ({"inner_group_num": 2}, {"num_hidden_layers": 5, "num_hidden_groups": 5}),
        (OWN, {"num_hidden_layers": 7, "depth_embedding": True}),
        ({"sharing": "ffn"}, {**OWN, **KEY}),
        (BERT, {"num_hidden_layers": 9}),
    ],
)
def test_first_layers_compute_what_they_did(small, changes):
    model, larger = grown(SMALL.replace(**small), **changes)
    before, after = hidden_states(model), hidden_states(larger)
    assert len(after) == 1 + len(larger.config.layer_table())
    for one, other in zip(before, after, strict=False):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"depth_rank": 2, "depth_embedding": True},
        BERT,
        {"sharing": "attention", "share_layer_norm": False},
        {"inner_group_num": 2, "group_rule": "original"},
        # No config divides 3 of 4 layers into these groups, 0 0 1: nothing is shared.
        {"num_hidden_layers": 4, "num_hidden_groups": 2, "embedding_size": 12},
    ],
)
def test_a_model_cut_short_is_its_first_layers(changes):
    config = SMALL.replace(**changes)
    model = random_model(config)
    states = hidden_states(model)
    for layers in range(1, config.num_hidden_layers):
        shorter = build_model(from_model(model), layers=layers)
        assert not shorter.untrained_weights and shorter.config.family == config.family
        expected = states[: layers * config.inner_group_num + 1]
        for one, other in zip(hidden_states(shorter), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        parts = shorter.config.parameter_counts()
        assert sum(parts.values()) == shorter.count_params()


@pytest.mark.parametrize("layers", [0, 4, -1, 1.0, True])
def test_a_model_has_no_such_layers(layers):
    checkpoint = from_model(tiny.shared_model("pretraining", num_hidden_layers=3))
    with pytest.raises(UsageError, match="must be from 1 to 3, the layers of albert_"):
        build_model(checkpoint, layers=layers)


def test_exits_say_how_to_stop_at_a_layer():
    exits = {"num_exits": 1, "vocab_size": 41}
    checkpoint = from_model(tiny.shared_model("text_classifier", **exits))
    with pytest.raises(UsageError, match="use exit=layers:1, received layers=1"):
        build_model(checkpoint, layers=1)
    assert build_model(checkpoint, None, layers=1).config.num_hidden_layers == 1
    assert build_model(checkpoint, layers=2).num_exits == 1


def test_layers_are_stacked_on_top_of_themselves():
    small = SMALL.replace(sharing="none")
    model, larger = grown(small, AlbertPretrainer, num_hidden_layers=8)
    small, large = weight_names(model), weight_names(larger)
    for layer in range(8):
        for part in ("attention_{}/key/kernel", "ffn_layer_norm_{}/beta"):
            name = f"backbone/encoder/{part}"
            np.testing.assert_array_equal(
                small[name.format(layer % 3)], large[name.format(layer)]
            )


@pytest.mark.parametrize(
    "small, changes, message",
    [
        ({}, {"hidden_size": 15}, "has hidden_size=12, not 15"),
        ({}, {"vocab_size": 31, "embedding_size": 5}, "vocab_size=29, not 31; embed"),
        ({}, {"inner_group_num": 2}, "has inner_group_num=1, not 2"),
        ({}, {"hidden_act": "relu"}, "has hidden_act='gelu_new', not 'relu'"),
        ({}, {"num_hidden_layers": 2}, "_layers=3, and can only grow, rec.*2"),
        (OWN, {"depth_rank": 3}, "has depth_rank=2, not 3"),
        (OWN, KEY, r"has depth_matrices=None, not \('key',\)"),
        (GROUPS, {"num_hidden_layers": 6}, "0 and 1 .* share .*num_hidden_groups=6 w"),
        ({"sharing": "none"}, {"sharing": "all"}, "blocks 0 and 1 of .* not$"),
    ],
)
def test_what_does_not_fit_is_refused(small, changes, message):
    small = {"vocab_size": 29, "num_hidden_layers": 3, **small}
    checkpoint = from_model(tiny.shared_model("pretraining", **small))
    with pytest.raises(UsageError, match=message):
        grow(checkpoint, checkpoint.config.replace(**changes))


def test_a_part_of_a_layers_own_matrices_is_refused():
    source = from_model(tiny.make_model(depth_rank=2, vocab_size=41))
    tensors = source.tensors
    source.tensors = {
        name: tensors[name] for name in tensors if name[-8:] != "/query_b"
    }
    with pytest.raises(DataError, match="no tensor for encoder/depth_0/query_b"):
        build_model(source, None)
