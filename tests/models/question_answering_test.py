"""The beam head: its two branches, its mask, its precision; plain `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.dropout import StepSeeds
from albert_tf.models.base import weight_names
from albert_tf.models.question_answering import AlbertBeamQuestionAnswering
from tests.tiny import tiny_config

B, T, S, E = 3, 9, 3, 2
CONFIG = tiny_config(vocab_size=53, initializer_range=0.4, classifier_dropout_prob=0.5)


@pytest.fixture
def batch():
    """Rows `[CLS] question [SEP] text [SEP]`, the last of them without text."""
    rng = np.random.default_rng(5)
    return {
        "token_ids": rng.integers(5, 53, (B, T)).astype("int32"),
        "segment_ids": bits("000111111", "000011100", "000100000"),
        "padding_mask": bits("1" * 9, "111111100", "111100000"),
    }


def bits(*rows):
    return np.array([[int(bit) for bit in row] for row in rows], "int32")


P_MASK = bits("011000001", "011100111", "011111111")


@pytest.fixture
def model():
    made = AlbertBeamQuestionAnswering(CONFIG, start_n_top=S, end_n_top=E, seed=3)
    rng = np.random.default_rng(1)
    for name, variable in weight_names(made).items():
        if "_head/" in name:
            variable.assign(rng.normal(0, 0.5, variable.shape))
    return made


def test_places_that_are_masked_never_come_before_others(model, batch):
    out = {k: np.asarray(v) for k, v in model({**batch, "p_mask": P_MASK}).items()}
    assert out["start_index"][2, 0] == 0  # only [CLS] is allowed there
    assert out["start_log_probs"][2, 0] == pytest.approx(0, abs=1e-6)
    assert (out["start_log_probs"][2, 1:] < -1e29).all()
    for value in out.values():
        assert np.isfinite(value).all()


def test_the_mask_follows_from_the_segments(model, batch):
    """Without a padding mask, too; `tf1_test` has the original's numbers with one."""
    del batch["padding_mask"]
    model.pad_id = 0
    batch["token_ids"] = np.where(np.arange(T) < [[9], [7], [4]], batch["token_ids"], 0)
    derived = model(batch)
    given = model({**batch, "p_mask": P_MASK})
    for name, value in given.items():
        np.testing.assert_array_equal(value, derived[name], err_msg=name)


def test_what_the_head_needs_is_named(model, batch):
    with pytest.raises(ValueError, match="'start_positions' in training"):
        model(batch, training=True)
    with pytest.raises(ValueError, match="takes no packed rows"):
        model({**batch, "pack_ids": P_MASK})
    del batch["segment_ids"]
    with pytest.raises(ValueError, match="'p_mask', or 'segment_ids'"):
        model(batch)
    for name in ("start_n_top", "end_n_top"):
        for value in (0, -1, 2.0, True, "5"):
            with pytest.raises(ValueError, match=f"{name} must be a positive integer"):
                AlbertBeamQuestionAnswering(CONFIG, **{name: value})


def test_rows_shorter_than_the_beam(batch):
    model = AlbertBeamQuestionAnswering(CONFIG, start_n_top=6, end_n_top=5, seed=3)
    short = {k: v[:, 3:7][:1] for k, v in batch.items()}
    out = {k: np.asarray(v) for k, v in model(short).items()}
    assert out["start_index"].shape == (1, 6)
    assert out["end_index"].shape == (1, 30)
    assert out["start_index"].max() < 4
    assert out["end_index"].max() < 4
    assert (out["start_log_probs"][0] > -1e29).sum() == 3
    assert np.isfinite(out["cls_logits"]).all()


def test_dropout_is_in_the_answerability_alone(model, batch):
    batch["start_positions"] = np.array([4, 5, 0])
    still = model(batch)
    trained = [model(batch, training=True, seeds=StepSeeds(1, i)) for i in (0, 0, 1)]
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(trained[0][name], still[name], rtol=1e-6, atol=1e-6)
    first, again, other = (np.asarray(out["cls_logits"]) for out in trained)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_masked_scores_are_finite_in_half_precision(policy, batch):
    model = AlbertBeamQuestionAnswering(CONFIG, seed=3, dtype=policy)
    full = AlbertBeamQuestionAnswering(CONFIG, seed=3)
    gold = {**batch, "start_positions": np.array([4, 5, 0])}
    for inputs in (batch, gold):
        for name, value in model(inputs).items():
            assert np.isfinite(np.asarray(value)).all(), name
            wanted = "int32" if name.endswith("index") else "float32"
            assert keras.backend.standardize_dtype(value.dtype) == wanted
    # Given the same encoder's outputs, the head gives the same bits.
    x = tf.cast(model.backbone(batch)["sequence_output"], tf.float32)
    np.testing.assert_array_equal(model.end_head(x, x), full.end_head(x, x))
