"""The pretrainer's heads sit where they should."""

import numpy as np
import pytest

from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.pretrainer import AlbertPretrainer
from tests.tiny import tiny_config

B, T, V = 2, 7, 53
CONFIG = tiny_config(vocab_size=V, initializer_range=0.1)


@pytest.fixture(scope="module")
def model():
    return AlbertPretrainer(CONFIG, seed=3)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "token_ids": rng.integers(0, V, (B, T)).astype("int32"),
        "mask_positions": np.array([[2, 5, 0], [1, 0, 0]], "int32"),
    }


def test_logits_are_those_of_the_positions(model, batch):
    out = model(batch)
    everywhere = model.mlm_head(out["sequence_output"], model.backbone.word_embeddings)
    for row, positions in enumerate(batch["mask_positions"]):
        np.testing.assert_allclose(
            out["mlm_logits"][row], everywhere.numpy()[row, positions], atol=1e-5
        )


def test_the_output_table_is_the_input_table(model, batch):
    before = model(batch)["mlm_logits"].numpy()
    table = model.backbone.word_embeddings
    old = table.numpy()
    unused = next(i for i in range(V) if i not in batch["token_ids"])
    try:
        new = old.copy()
        new[unused] += np.arange(6)
        table.assign(new)
        after = model(batch)["mlm_logits"].numpy()
    finally:
        table.assign(old)
    changed = np.abs(after - before).max((0, 1)) > 1e-4
    assert list(np.flatnonzero(changed)) == [unused]
    np.testing.assert_array_equal(
        np.delete(after, unused, -1), np.delete(before, unused, -1)
    )


def test_masked_lm_is_the_pretrainer_without_its_other_head(model, batch):
    pretrainer, model = model, AlbertMaskedLM(CONFIG, seed=5)
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
    np.testing.assert_allclose(model(batch), pretrainer(batch)["mlm_logits"], atol=1e-6)
