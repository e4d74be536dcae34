"""Every way of sharing weights is the same computation on other tables."""

import keras
import numpy as np
import pytest

from albert_tf.layers.encoder import SharedEncoder
from albert_tf.layers.ops import StepSeeds
from tests.tiny import tiny_config

B, T, E, D = 2, 7, 6, 12


def make(dtype=None, seed=3, **kwargs):
    encoder = SharedEncoder(
        tiny_config(**{"num_hidden_layers": 3} | kwargs), seed, dtype=dtype
    )
    encoder.build()
    return encoder


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(B, T, E)).astype("float32")


def parts(encoder):
    return {
        "attention": encoder.attentions,
        "attention_layer_norm": encoder.attention_layer_norms,
        "ffn": encoder.ffns,
        "ffn_layer_norm": encoder.ffn_layer_norms,
    }


def copy_by_table(source, target):
    """Gives every application in `target` the weights it has in `source`."""
    if source.embedding_projection is not None:
        target.embedding_projection.set_weights(
            source.embedding_projection.get_weights()
        )
    for theirs, ours in zip(source.table, target.table, strict=True):
        for name in theirs._fields:
            layer = parts(source)[name][getattr(theirs, name)]
            parts(target)[name][getattr(ours, name)].set_weights(layer.get_weights())


def randomize(encoder):
    rng = np.random.default_rng(1)
    for weight in encoder.weights:
        if "seed" not in weight.path:
            weight.assign(weight + rng.normal(size=weight.shape) * 0.3)


@pytest.mark.parametrize(
    "mode, norms, groups, inner",
    [
        ("all", False, 1, 1),
        ("ffn", True, 2, 1),
        ("all", True, 2, 2),
        ("attention", False, 3, 2),
    ],
)
def test_sharing_equals_no_sharing_of_copies(x, mode, norms, groups, inner):
    sizes = dict(num_hidden_groups=groups, inner_group_num=inner)
    shared = make(sharing=mode, share_layer_norm=norms, **sizes)
    randomize(shared)
    apart = make(sharing="none", seed=4, **sizes)
    copy_by_table(shared, apart)
    mask = np.ones((B, T), "int32")
    mask[1, 4:] = 0
    one, other = shared(x, padding_mask=mask), apart(x, padding_mask=mask)
    assert len(one.hidden_states) == 1 + 3 * inner
    np.testing.assert_allclose(one.sequence_output, other.sequence_output, atol=1e-5)
    for a, b in zip(one.hidden_states, other.hidden_states, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_every_layer_has_masks_of_its_own(x):
    encoder = make(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    taken = []

    class Recorder(StepSeeds):
        def next(self, ordered=True):
            taken.append(tuple(super().next(ordered).numpy()))
            return keras.ops.convert_to_tensor(taken[-1], "uint32")

    encoder(x, training=True, seeds=Recorder(3, 5))
    # Probabilities, attention output and feed-forward output, three times.
    assert len(taken) == len(set(taken)) == 3 * 3
