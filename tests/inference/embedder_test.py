"""`Embedder` on small random models."""

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.embedder import Embedder
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.embedder import AlbertTextEmbedder
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


def test_any_layer_and_pooling(embed):
    outputs = [_states(embed, text) for text in TEXTS]
    states = [[x.numpy()[0] for x in row["hidden_states"]] for row in outputs]
    means = {layer: embed(TEXTS, layer) for layer in (0, 1, 2, -1, -3)}
    for layer, vectors in means.items():
        assert vectors.dtype == np.float32 and vectors.shape == (4, 12)
        expected = [row[layer].mean(0) for row in states]
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert not np.allclose(means[1], means[2], atol=1e-2)
    first = embed(TEXTS, 1, "cls")
    np.testing.assert_allclose(first, [row[1][0] for row in states], atol=1e-5)
    pooled = embed(TEXTS, pooling="pooled")
    expected = [row["pooled_output"][0] for row in outputs]
    np.testing.assert_allclose(pooled, expected, atol=1e-5)


def test_single_texts(embed):
    assert embed("a").shape == (12,)
    np.testing.assert_allclose(embed(b"a"), embed("a"))
    assert embed([]).shape == (0, 12)


def test_refuses(embed, tokenizer):
    for given, message in (
        ((3,), "layer must be from -3 to 2, received 3"),
        ((-4,), "layer must be from -3 to 2, received -4"),
        (("last",), "layer must be .*, received 'last'"),
        ((-1, "sum"), "one of mean, cls, pooled, max, received 'sum'"),
        ((1, "pooled"), "'pooled' reads layer 2, received layer 1"),
    ):
        with pytest.raises(UsageError, match=message):
            embed("a", *given)
    without = Embedder(AlbertMaskedLM(CONFIG), tokenizer)
    with pytest.raises(UsageError, match="has no pooler"):
        without("a", pooling="pooled")
    with pytest.raises(UsageError, match="must have an encoder, received object"):
        Embedder(object(), tokenizer)
    with pytest.raises(UsageError, match="max_seq_length must be at most"):
        Embedder(AlbertBackbone(CONFIG), tokenizer, max_seq_length=25)


def test_a_trained_embedder_says_how(tokenizer):
    config = CONFIG.replace(inner_group_num=2)
    options = dict(pooling="cls", dimension=8, prompts={"query": "the cat "})
    model = AlbertTextEmbedder(config, seed=1, **options)
    embed = Embedder(model, tokenizer)
    whole = Embedder(model.backbone, tokenizer)(TEXTS, pooling="cls")
    expected = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embed(TEXTS, pooling="cls"), whole, atol=1e-6)
    short = expected[:, :3] / np.linalg.norm(expected[:, :3], axis=1, keepdims=True)
    np.testing.assert_allclose(embed(TEXTS, dimension=3), short, atol=1e-6)
    query = embed("sat", role="query")
    np.testing.assert_allclose(query, embed("the cat sat"), atol=1e-6)
    for arguments, message in (
        ({"role": "passage"}, "has prompts for the roles query, received 'passage'"),
        ({"dimension": 9}, "dimension: the vectors have 8 numbers, received 9"),
    ):
        with pytest.raises(UsageError, match=message):
            embed("a", **arguments)


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
    shorter = albert_tf.Embedder.from_pretrained(tmp_path / "m", layers=1)
    np.testing.assert_allclose(shorter(TEXTS), embed(TEXTS, layer=1), atol=1e-6)
