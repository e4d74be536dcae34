"""Every way of sharing weights is the same computation on other tables."""

import itertools

import keras
import numpy as np
import pytest

from albert_tf.config import SHARING_MODES
from albert_tf.layers.dropout import StepSeeds
from albert_tf.layers.encoder import SharedEncoder
from tests.tiny import tiny_config

B, T, E, D = 2, 7, 6, 12


def make(dtype=None, seed=3, **kwargs):
    encoder = SharedEncoder(
        tiny_config(**{"num_hidden_layers": 4} | kwargs), seed, dtype=dtype
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
        *itertools.product(SHARING_MODES, [True], [1, 2], [1]),
        ("all", False, 1, 1),
        ("all", True, 4, 1),
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
    assert len(one.hidden_states) == 1 + 4 * inner
    np.testing.assert_allclose(one.sequence_output, other.sequence_output, atol=1e-5)
    for a, b in zip(one.hidden_states, other.hidden_states, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_groups_do_not_share(x):
    one = make(num_hidden_groups=2)
    before = one(x).hidden_states
    kernel = one.ffns[1].intermediate.kernel
    kernel.assign(kernel * 2)
    after = one(x).hidden_states
    for layer in range(3):
        np.testing.assert_array_equal(before[layer], after[layer])
    assert np.abs(before[3] - after[3]).max() > 1e-3


@pytest.mark.parametrize("size, projection", [(6, True), (12, False)])
def test_the_projection_is_there_only_when_needed(size, projection):
    encoder = make(embedding_size=size)
    assert (encoder.embedding_projection is not None) == projection
    x = np.ones((B, T, size), "float32")
    first = encoder(x).hidden_states[0]
    assert first.shape == (B, T, D)
    if not projection:
        np.testing.assert_array_equal(first, x)
        always = make(embedding_size=size, embedding_projection="always")
        assert always.embedding_projection is not None


def test_one_block_by_hand(x):
    encoder = make(num_hidden_layers=1)
    randomize(encoder)
    out = encoder(x)
    x0 = encoder.embedding_projection(x)
    attended, probs = encoder.attentions[0](x0)
    x1 = encoder.attention_layer_norms[0](x0 + attended)
    x2 = encoder.ffn_layer_norms[0](x1 + encoder.ffns[0](x1))
    np.testing.assert_allclose(out.sequence_output, x2, atol=1e-5)
    np.testing.assert_allclose(out.hidden_states[0], x0, atol=1e-6)
    np.testing.assert_array_equal(out.hidden_states[1], out.sequence_output)
    np.testing.assert_allclose(out.attentions[0], probs, atol=1e-6)


def test_every_layer_has_masks_of_its_own(x):
    encoder = make(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    taken = []

    class Recorder(StepSeeds):
        def next(self, ordered=True):
            taken.append(tuple(super().next(ordered).numpy()))
            return keras.ops.convert_to_tensor(taken[-1], "uint32")

    encoder(x, training=True, seeds=Recorder(3, 5))
    # Probabilities, attention output and feed-forward output, four times.
    assert len(taken) == len(set(taken)) == 3 * 4


def test_dropout_follows_the_seeds(x):
    encoder = make(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)

    def run(seed, step):
        out = encoder(x, training=True, seeds=StepSeeds(seed, step))
        return keras.ops.convert_to_numpy(out.sequence_output)

    np.testing.assert_array_equal(run(1, 2), run(1, 2))
    assert np.abs(run(1, 2) - run(1, 3)).max() > 0.1
    assert np.abs(run(1, 2) - run(2, 2)).max() > 0.1
    inference = encoder(x, seeds=StepSeeds(1, 2)).sequence_output
    np.testing.assert_array_equal(inference, encoder(x).sequence_output)
