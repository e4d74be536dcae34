"""`Embedder` on small random models."""

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.embedder import Embedder
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.tensorflow.fast_forward import FastForward
from tests.tiny import CONFIG

TEXTS = ["the cat sat", "a", "the dog " * 30, ""]


@pytest.fixture(scope="module")
def embed(tokenizer):
    return Embedder(AlbertBackbone(CONFIG, seed=1), tokenizer, batch_size=3)


def _states(embed, text):
    ids = embed.tokenizer.encode(text)[:22]
    ids = [embed.tokenizer.cls_id, *ids, embed.tokenizer.sep_id]
    return embed.model({"token_ids": np.array([ids])}, output_hidden_states=True)


@pytest.mark.parametrize("layer", [0, 1, 2, -1, -3])
def test_any_layer(embed, layer):
    mean, cls = embed(TEXTS, layer), embed(TEXTS, layer, "cls")
    assert mean.dtype == np.float32 and mean.shape == (4, 12)
    for i, text in enumerate(TEXTS):
        state = _states(embed, text)["hidden_states"][layer].numpy()[0]
        np.testing.assert_allclose(mean[i], state.mean(0), atol=1e-5)
        np.testing.assert_allclose(cls[i], state[0], atol=1e-5)
    assert not np.allclose(mean, embed(TEXTS, 1 if layer != 1 else 2), atol=1e-2)


def test_pooled_and_single_texts(embed):
    pooled = embed(TEXTS, pooling="pooled")
    for row, text in zip(pooled, TEXTS, strict=True):
        expected = _states(embed, text)["pooled_output"][0]
        np.testing.assert_allclose(row, expected, atol=1e-5)
    assert embed("a").shape == (12,)
    np.testing.assert_allclose(embed(b"a"), embed("a"))
    assert embed([]).shape == (0, 12)


def test_refuses(embed, tokenizer):
    with pytest.raises(UsageError, match="layer must be from -3 to 2, received 3"):
        embed("a", 3)
    with pytest.raises(UsageError, match="layer must be from -3 to 2, received -4"):
        embed("a", -4)
    with pytest.raises(UsageError, match="layer must be .*, received 'last'"):
        embed("a", "last")
    with pytest.raises(UsageError, match="one of mean, cls, pooled, received 'max'"):
        embed("a", pooling="max")
    with pytest.raises(UsageError, match="'pooled' reads layer 2, received layer 1"):
        embed("a", 1, "pooled")
    without = Embedder(AlbertMaskedLM(CONFIG), tokenizer)
    with pytest.raises(UsageError, match="has no pooler"):
        without("a", pooling="pooled")
    with pytest.raises(UsageError, match="must have an encoder, received object"):
        Embedder(object(), tokenizer)
    with pytest.raises(UsageError, match="max_seq_length must be at most"):
        Embedder(AlbertBackbone(CONFIG), tokenizer, max_seq_length=25)


def test_runs_in_a_graph_made_once(tokenizer, monkeypatch):
    embed = Embedder(AlbertBackbone(CONFIG, seed=1), tokenizer)
    traced, call = [], FastForward.__call__
    monkeypatch.setattr(
        FastForward, "__call__", lambda *a, **k: traced.append(1) or call(*a, **k)
    )
    for size in (1, 3):
        embed(["the " * 20] * size)
        embed(["a"] * size, layer=2)  # the same as -1
    assert traced == [1]


def test_from_pretrained_reads_the_encoder_of_any_model(tokenizer, tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    load.save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    embed = albert_tf.Embedder.from_pretrained(tmp_path / "m", batch_size=2)
    expected = Embedder(model, tokenizer)(TEXTS, pooling="pooled")
    np.testing.assert_allclose(embed(TEXTS, pooling="pooled"), expected, atol=1e-6)
