"""Models are compiled for many rows at a time."""

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.export.runtime_folder import export_for_runtime
from albert_tf.export.saved_model import export_saved_model
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.fill_mask import FillMask
from albert_tf.inference.forward import compile_head
from tests import exits
from tests.tiny import SPIECE, make_model

ROWS = 5


def make_batch(rows):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 40, (ROWS, 9)).astype("int32")
    mask = (np.arange(9) < rng.integers(2, 10, (ROWS, 1))).astype("int32")
    batch = {
        features.TOKEN_IDS: ids,
        features.SEGMENT_IDS: np.zeros_like(ids),
        features.PADDING_MASK: mask,
        features.PLACES: np.arange(ROWS, dtype="int32") * 9,
    }
    return {name: value[:rows] for name, value in batch.items()}


def count_calls(monkeypatch, model):
    calls, call = [], type(model).call
    monkeypatch.setattr(
        type(model), "call", lambda *a, **k: calls.append(1) or call(*a, **k)
    )
    return calls


def test_few_programs_serve_any_number_of_rows(monkeypatch):
    model = make_model("text_classifier", num_hidden_layers=1)
    expected = keras.ops.convert_to_numpy(model(make_batch(ROWS)))
    forward = compile_head(model, "text_classifier")
    calls = count_calls(monkeypatch, model)
    counts = range(1, ROWS + 1)
    for count in counts:
        found = forward(make_batch(count))
        np.testing.assert_allclose(found, expected[:count], atol=1e-5)
    # JAX calls it to compile: 1, 2, 4 and 8 rows.
    programs = {"jax": 4}.get(keras.backend.backend(), len(counts))
    assert len(calls) == programs
    other = make_model("text_classifier", seed=7, num_hidden_layers=1)
    model.set_weights(other.get_weights())
    trained = forward(make_batch(ROWS))
    assert len(calls) == programs + (keras.backend.backend() != "jax")
    other = keras.ops.convert_to_numpy(model(make_batch(ROWS)))
    np.testing.assert_allclose(trained, other, atol=1e-5)
    assert np.abs(trained - expected).max() > 1e-3


@pytest.mark.parametrize(
    ("rule", "rows"),
    [("layers:1", 1), ("entropy:1.09", 5), ("entropy:9", 5), ("patience:1", 5)],
)
def test_rows_that_leave_early(rule, rows):
    """Perhaps all of them, before the last layer."""
    model = exits.make_model(num_labels=3)
    every = model.every_exit(make_batch(rows), training=False)
    logits = [*map(keras.ops.convert_to_numpy, every["exit_logits"])]
    logits.append(keras.ops.convert_to_numpy(every["logits"]))
    found = compile_head(model, "text_classifier", rule)(make_batch(rows))
    layers = found["num_layers"]
    if rule in ("layers:1", "entropy:9"):
        assert layers.tolist() == [1] * rows
    expected = [logits[layer - 1][row] for row, layer in enumerate(layers)]
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)


def test_masks_are_filled_by_few_programs(monkeypatch):
    sizes = {"vocab_size": 30_000, "max_position_embeddings": 80}
    model = make_model("masked_lm", **sizes)
    fill = FillMask(model, albert_tf.AlbertTokenizer(SPIECE))
    texts = [" ".join(["cat"] * n + ["[MASK]"] * (1 + n % 2)) for n in range(1, 9)]
    calls = count_calls(monkeypatch, model)
    alone = [fill(text, top_k=2) for text in texts]
    # One row, 64 tokens; 1 and 2 masks.
    assert len(calls) == {"jax": 2}.get(keras.backend.backend(), len(texts))
    for one, other in zip(alone, fill(texts, top_k=2), strict=True):
        for a, b in zip(one, other, strict=True):
            a, b = (x[0] if isinstance(x, list) else x for x in (a, b))
            assert a["score"] == pytest.approx(b["score"], rel=1e-4)


def test_vectors_do_not_depend_on_the_batch():
    model = make_model(None, vocab_size=30_000, max_position_embeddings=80)
    embed = Embedder(model, albert_tf.AlbertTokenizer(SPIECE))
    texts = ["One.", "Two cats sat on the mat.", " ".join(["again"] * 70)]
    for pooling in ("mean", "cls", "pooled"):
        together = embed(texts, pooling=pooling)
        alone = [embed(text, pooling=pooling) for text in texts]
        np.testing.assert_allclose(together, alone, atol=1e-5)


def test_exports_are_refused_in_one_line(tmp_path):
    tokenizer = albert_tf.AlbertTokenizer(SPIECE)
    with pytest.raises(UsageError, match="export: needs Keras on TensorFlow"):
        export_saved_model(make_model("text_classifier"), tmp_path, tokenizer=tokenizer)
    with pytest.raises(UsageError, match="export: needs Keras on TensorFlow"):
        export_for_runtime(make_model(), tmp_path, format="litert", tokenizer=tokenizer)
