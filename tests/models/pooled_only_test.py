"""The last block computed for `[CLS]` alone gives the same values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.models.backbone import AlbertBackbone
from tests.tiny import tiny_config

RNG = np.random.default_rng(0)
LENGTHS = (7, 3, 5)
CONFIG = tiny_config(vocab_size=50, intermediate_size=64, initializer_range=0.02)


def _backbone(**changes):
    return AlbertBackbone(CONFIG.replace(**changes), seed=1)


def _unpacked():
    """Three examples in rows of their own."""
    ids = RNG.integers(5, 50, (3, 8)).astype("int32")
    mask = (np.arange(8) < np.array(LENGTHS)[:, None]).astype("int32")
    return {features.TOKEN_IDS: ids * mask, features.PADDING_MASK: mask}


def _packed(unpacked):
    """The same three: the first in a row, the others together in another."""
    ids = unpacked[features.TOKEN_IDS]
    rows = {
        features.TOKEN_IDS: [ids[0], np.concatenate([ids[1][:3], ids[2][:5]])],
        features.PACK_IDS: [[1] * 7 + [0], [1] * 3 + [2] * 5],
        features.POSITION_IDS: [range(8), [0, 1, 2, 0, 1, 2, 3, 4]],
    }
    batch = {name: np.array([*map(list, v)], "int32") for name, v in rows.items()}
    mask = (batch[features.PACK_IDS] != 0).astype("int32")
    places = np.array([0, 8, 11], "int32")
    return {**batch, features.PADDING_MASK: mask, features.PLACES: places}


def _values_and_gradients(model, batch, **options):
    batch = {name: tf.constant(value) for name, value in batch.items()}
    with tf.GradientTape() as tape:
        pooled = model(batch, **options)["pooled_output"]
        loss = tf.reduce_sum(pooled * tf.constant(UPSTREAM, tf.float32))
    return pooled, tape.gradient(loss, [v.value for v in model.trainable_variables])


UPSTREAM = RNG.normal(size=(3, CONFIG.hidden_size))


@pytest.mark.parametrize(("sharing", "packed"), [("all", False), ("none", True)])
def test_equals_the_whole_output(sharing, packed):
    model = _backbone(sharing=sharing)
    batch = _unpacked()
    expected = _values_and_gradients(model, batch)
    batch = _packed(batch) if packed else batch
    found = _values_and_gradients(model, batch, pooled_only=True)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
    for mine, theirs in zip(found[1], expected[1], strict=True):
        mine, theirs = map(tf.convert_to_tensor, (mine, theirs))
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_places_of_choices_keep_their_shape():
    model = _backbone()
    batch = _packed(_unpacked())
    flat = model(batch, pooled_only=True)["pooled_output"]
    batch[features.PLACES] = np.array([[0, 8], [11, 0]], "int32")
    pooled = model(batch, pooled_only=True)["pooled_output"]
    assert pooled.shape == (2, 2, CONFIG.hidden_size)
    np.testing.assert_allclose(pooled[1, 0], flat[2], atol=1e-6)
    np.testing.assert_allclose(pooled[1, 1], flat[0], atol=1e-6)


def test_positions_in_packed_rows_mean_the_same_as_places():
    model = _backbone()
    batch = _packed(_unpacked())
    del batch[features.PLACES]
    batch[features.CLS_POSITIONS] = np.array([[0, 0], [0, 3]], "int32")
    found = model(batch, pooled_only=True)["pooled_output"]
    np.testing.assert_allclose(found, model(batch)["pooled_output"], atol=1e-6)


def test_what_it_cannot_be_combined_with():
    with pytest.raises(UsageError, match="output_attentions"):
        _backbone()(_unpacked(), pooled_only=True, output_attentions=True)
    with pytest.raises(UsageError, match="add_pooler"):
        AlbertBackbone(CONFIG, add_pooler=False)(_unpacked(), pooled_only=True)


def test_the_last_block_transforms_one_token_of_an_example():
    """What the trick is for: the widest product of the last block has three rows."""
    model = _backbone()
    batch = {name: tf.constant(value) for name, value in _unpacked().items()}
    graph = tf.function(lambda batch: model(batch, pooled_only=True))
    made = graph.get_concrete_function(batch).graph.get_operations()
    shapes = [op.outputs[0].shape for op in made if op.type == "Tanh"]
    widest = [shape.num_elements() // 64 for shape in shapes if shape[-1] == 64]
    assert widest == [3 * 8, 3]
