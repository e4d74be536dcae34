"""`embed` and `embed_layer` of an exported model give the vectors of `Embedder`."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs, specs_of
from albert_tf.inference.embedder import Embedder
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.embedder import AlbertTextEmbedder
from tests import tiny

LAYERS = tiny.CONFIG.num_hidden_layers


@pytest.fixture(scope="module")
def model():
    return AlbertBackbone(tiny.CONFIG, seed=1)


@pytest.fixture(scope="module")
def embed(model, tokenizer):
    return Embedder(model, tokenizer)


@pytest.fixture(scope="module")
def ask(model, tokenizer):
    signatures = make_signatures(model, TextInputs(tokenizer, 24))
    functions = {
        name: tf.function(signatures[name], specs_of(signatures[name], model))
        for name in ("embed", "embed_layer")
    }

    def ask(name, *inputs):
        outputs = functions[name](*map(tf.constant, inputs))
        return {key: value.numpy() for key, value in outputs.items()}

    return ask


def test_embed_equals_python(ask, embed):
    texts = ["the cat", "", "the dog " * 30, "ΑΣ, 1990, 😀"]
    got = ask("embed", texts)
    assert got.keys() == {"mean_output", "cls_output", "pooled_output"}
    for name, value in got.items():
        expected = embed(texts, pooling=name.removesuffix("_output"))
        np.testing.assert_allclose(value, expected, atol=1e-6)


def test_a_trained_embedder_has_a_signature_for_each_prompt(tokenizer):
    options = dict(pooling="max", dimension=7, prompts={"query": "the ", "": "a "})
    trained = AlbertTextEmbedder(tiny.CONFIG, seed=1, **options)
    signatures = make_signatures(trained, TextInputs(tokenizer, 24))
    assert "pair" not in signatures
    embed, texts = Embedder(trained, tokenizer), ["the cat", "", "the dog " * 30]
    for name, role in (("embed", ""), ("embed_query", "query")):
        # TensorFlow Serving sends strings; prompts are part of the graph.
        found = signatures[name](tf.constant(texts))["embedding"]
        np.testing.assert_allclose(found, embed(texts, role=role), atol=1e-6)


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
            st.integers(-LAYERS - 1, LAYERS),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_text_has_its_own_layer(ask, embed, rows):
    texts, layers = map(list, zip(*rows, strict=True))
    got = ask("embed_layer", texts, layers)
    assert got.keys() == {"mean_output", "cls_output"}
    for i, (text, layer) in enumerate(rows):
        for name in ("mean", "cls"):
            np.testing.assert_allclose(
                got[f"{name}_output"][i], embed(text, layer, name), atol=1e-6
            )


@pytest.mark.parametrize("layers", [[0, LAYERS + 1], [-LAYERS - 2, 0]])
def test_a_layer_out_of_range(ask, layers):
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"layer: from -{LAYERS + 1} to {LAYERS}, received(.|\n)*"
        rf"{layers[0]} {layers[1]}",
    ):
        ask("embed_layer", ["a", "b"], layers)
