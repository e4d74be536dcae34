"""Masked LM alone: at given positions, or everywhere."""

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.pretrainer import AlbertPretrainer

B, T, V = 2, 7, 53
CONFIG = AlbertConfig(
    vocab_size=V,
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
    initializer_range=0.1,
)
TOKENS = np.random.default_rng(0).integers(0, V, (B, T)).astype("int32")
POSITIONS = np.array([[2, 5, 0], [1, 6, 3]], "int32")


def test_positions_select_rows():
    model = AlbertMaskedLM(CONFIG, seed=3)
    everywhere = model(TOKENS).numpy()
    assert everywhere.shape == (B, T, V)
    some = model({"token_ids": TOKENS, "mask_positions": POSITIONS}).numpy()
    expected = np.take_along_axis(everywhere, POSITIONS[..., None], 1)
    np.testing.assert_allclose(some, expected, atol=1e-5)


def test_it_is_the_pretrainer_without_its_other_head():
    pretrainer, model = AlbertPretrainer(CONFIG, seed=4), AlbertMaskedLM(CONFIG, seed=5)
    theirs, ours = weight_names(pretrainer), weight_names(model)
    assert set(theirs) - set(ours) == {
        "backbone/pooler/kernel",
        "backbone/pooler/bias",
        "sop_head/kernel",
        "sop_head/bias",
    }
    assert set(ours) < set(theirs)
    for name, weight in ours.items():
        weight.assign(theirs[name])
    batch = {"token_ids": TOKENS, "mask_positions": POSITIONS}
    np.testing.assert_allclose(model(batch), pretrainer(batch)["mlm_logits"], atol=1e-6)
