"""Defaults, padding and packing: what must not change an output."""

import keras
import numpy as np
import pytest

from albert_tf.layers.dropout import StepSeeds
from albert_tf.models.backbone import AlbertBackbone
from tests.tiny import tiny_config

B, T, D = 3, 11, 12
CONFIG = tiny_config(vocab_size=53, max_position_embeddings=T, initializer_range=0.3)
LENGTHS = [4, 11, 7]


@pytest.fixture(scope="module")
def model():
    return AlbertBackbone(CONFIG, seed=3)


def run(model, inputs, **options):
    outputs = model(inputs, **options)
    return {name: keras.ops.convert_to_numpy(v) for name, v in outputs.items()}


@pytest.fixture
def inputs():
    rng = np.random.default_rng(0)
    mask = (np.arange(T) < np.array(LENGTHS)[:, None]).astype("int32")
    return {
        "token_ids": rng.integers(1, 53, (B, T)).astype("int32"),
        "segment_ids": rng.integers(0, 2, (B, T)).astype("int32"),
        "padding_mask": mask,
    }


def test_defaults(model, inputs):
    tokens = inputs["token_ids"]
    full = {
        "token_ids": tokens,
        "segment_ids": np.zeros_like(tokens),
        "padding_mask": np.ones_like(tokens),
        "position_ids": np.broadcast_to(np.arange(T, dtype="int32"), (B, T)),
    }
    expected = run(model, full)["sequence_output"]
    for fewer in ({"token_ids": tokens}, tokens, keras.ops.convert_to_tensor(tokens)):
        found = run(model, fewer)["sequence_output"]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_padding_does_not_matter(model, inputs):
    before = run(model, inputs)
    padding = inputs["padding_mask"] == 0
    inputs["token_ids"][padding] = 52
    inputs["segment_ids"][padding] = 1
    after = run(model, inputs)
    np.testing.assert_array_equal(before["pooled_output"], after["pooled_output"])
    for row, length in enumerate(LENGTHS):
        states = after["sequence_output"][row, :length]
        np.testing.assert_array_equal(before["sequence_output"][row, :length], states)
        # And a row alone, without any padding, is the same.
        alone = {k: v[row : row + 1, :length] for k, v in inputs.items()}
        found = run(model, alone)["sequence_output"][0]
        np.testing.assert_allclose(found, states, atol=1e-5)


@pytest.mark.parametrize("pad_id", [0, 1])
def test_padding_at_the_end_is_masked_without_a_mask(inputs, pad_id):
    model = AlbertBackbone(CONFIG, seed=3)
    model.pad_id = pad_id
    tokens = np.where(inputs["padding_mask"], inputs["token_ids"], pad_id)
    tokens[:, 2] = pad_id  # inside a text, as [CLS] of byte-level BPE: attended
    full = {"token_ids": tokens, "padding_mask": inputs["padding_mask"]}
    masked, found = run(model, full), run(model, {"token_ids": tokens})
    for name, value in masked.items():
        np.testing.assert_array_equal(found[name], value)
    everywhere = {**full, "padding_mask": np.ones_like(tokens)}
    other = run(model, everywhere)["pooled_output"]
    assert np.abs(masked["pooled_output"] - other).max()
    row = {k: v[1:2] for k, v in everywhere.items()}
    expected = run(model, row)["pooled_output"]
    del row["padding_mask"]
    np.testing.assert_array_equal(run(model, row)["pooled_output"], expected)


def test_packed_rows_equal_rows_of_their_own(model, inputs):
    """Two examples and padding in one row of 15, longer than the position table."""
    rows, lengths, length = (0, 2), (4, 7), 15
    packed = {
        name: np.zeros((1, length), "int32")
        for name in ("token_ids", "segment_ids", "pack_ids", "position_ids")
    }
    start, starts = 0, []
    for number, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        part = slice(start, start + n)
        packed["token_ids"][0, part] = inputs["token_ids"][row, :n]
        packed["segment_ids"][0, part] = inputs["segment_ids"][row, :n]
        packed["pack_ids"][0, part] = number + 1
        packed["position_ids"][0, part] = np.arange(n)
        starts.append(start)
        start += n
    packed["cls_positions"] = np.array([starts], "int32")
    out, expected = run(model, packed), run(model, inputs)
    assert out["pooled_output"].shape == (1, 2, D)
    for number, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        found = out["sequence_output"][0, starts[number] : starts[number] + n]
        states = expected["sequence_output"][row, :n]
        np.testing.assert_allclose(found, states, atol=1e-5)
        found = out["pooled_output"][0, number]
        np.testing.assert_allclose(found, expected["pooled_output"][row], atol=1e-5)


def test_dropout_is_on_only_in_training(model, inputs):
    rates = dict(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    dropping = AlbertBackbone(CONFIG.replace(**rates), seed=3)
    one, other = (run(each, inputs)["sequence_output"] for each in (model, dropping))
    np.testing.assert_array_equal(one, other)

    def train(step=None):
        seeds = None if step is None else StepSeeds(1, step)
        return run(dropping, inputs, training=True, seeds=seeds)["sequence_output"]

    np.testing.assert_array_equal(train(5), train(5))
    assert np.abs(train(5) - train(6)).max() > 0.1
    # Without seeds, Keras's own generators: every call is another.
    assert np.abs(train() - train()).max() > 0.1
