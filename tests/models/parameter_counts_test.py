"""`AlbertConfig.num_parameters` against models that are really constructed."""

import math

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import PRESETS, SHARING_MODES, AlbertConfig
from albert_tf.heads import HEADS, find
from tests.tiny import tiny_config

SOME = {"depth_rank": 3, "depth_matrices": ("key", "ffn_intermediate")}


def count(config, head=None):
    """Of the built model, whose variables get no memory: only their shapes matter."""
    needed = {"num_labels": 2} if head == "token_classifier" else {}
    with keras.StatelessScope(initialize_variables=False):
        model = find(head).load_class()(config, **needed)
        return sum(math.prod(w.shape) for w in model.trainable_weights)


@pytest.mark.parametrize(
    ("preset", "head"),
    [
        *((preset, "pretraining") for preset in PRESETS),
        *(("albert_base_v1", h) for h in HEADS),
    ],
)
def test_presets_and_heads(preset, head):
    config = AlbertConfig.from_preset(preset)
    assert count(config, head) == config.num_parameters(head)


@settings(max_examples=25)
@given(
    layers=st.integers(1, 5),
    groups=st.integers(1, 5),
    inner=st.integers(1, 2),
    size=st.sampled_from([6, 12]),
    projection=st.sampled_from(["auto", "always"]),
    sharing=st.sampled_from(SHARING_MODES),
    norms=st.booleans(),
    own=st.sampled_from([{}, {"depth_embedding": True}, {"depth_rank": 2}, SOME]),
)
def test_every_way_of_sharing(
    layers, groups, inner, size, projection, sharing, norms, own
):
    config = tiny_config(
        vocab_size=53,
        num_hidden_layers=layers,
        num_hidden_groups=min(groups, layers),
        inner_group_num=inner,
        embedding_size=size,
        embedding_projection=projection,
        sharing=sharing,
        share_layer_norm=norms,
        **own,
    )
    assert count(config) == config.num_parameters()
    assert AlbertConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("rule", ["original", "huggingface"])
def test_groups_that_floating_point_skips(rule):
    config = tiny_config(num_hidden_layers=22, num_hidden_groups=22, group_rule=rule)
    assert count(config) == config.num_parameters()
