"""Models are compiled for many rows at a time."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.inference.forward import as_forward, compile_head
from albert_tf.models.exits import ElasticClassifier
from albert_tf.models.tensorflow.fast_forward import FastForward
from tests import exits
from tests.tiny import make_model, record_calls


def make_batch():
    ids = np.arange(5, 45, dtype=np.int32).reshape(4, 10)
    segments = np.tile(np.int32([0] * 6 + [1] * 4), (4, 1))
    mask = np.ones_like(ids)
    mask[1:3, 7:] = 0
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


def test_the_encoder_is_the_fused_one_and_follows_the_weights(monkeypatch):
    model = make_model("text_classifier")
    batch = make_batch()
    expected = model(batch).numpy()
    calls = record_calls(monkeypatch)
    traced = []
    call = FastForward.__call__
    monkeypatch.setattr(
        FastForward, "__call__", lambda *a, **k: traced.append(1) or call(*a, **k)
    )
    forward = compile_head(model, "text_classifier")
    # The start of each row is not needed.
    found = forward({**batch, "places": np.arange(4) * 10})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not calls
    gc.collect()
    model.set_weights(make_model("text_classifier", seed=7).get_weights())
    now = forward({name: value[:3, :8] for name, value in batch.items()})
    assert len(traced) == 1
    other = model({name: value[:3, :8] for name, value in batch.items()})
    np.testing.assert_allclose(now, other, atol=1e-5)
    assert np.abs(now - found[:3]).max() > 1e-3


def test_several_models_in_one_process_are_traced_without_a_warning(caplog):
    tf.get_logger().addHandler(caplog.handler)
    for _ in range(5):
        model = lambda batch, training: batch["token_ids"]  # noqa: E731
        as_forward(model, "text_classifier")({**make_batch(), "places": np.arange(4)})
    tf.get_logger().removeHandler(caplog.handler)
    assert not [m for m in caplog.messages if "retracing" in m]


def test_an_exit_rule_is_followed_with_the_fused_encoder():
    model = exits.make_model(config=exits.CONFIG.replace(num_hidden_layers=3))
    batch = make_batch()
    expected = ElasticClassifier(model, "patience:1")(batch)
    forward = compile_head(model, "text_classifier", "patience:1")
    gc.collect()
    early = forward(batch)
    for name in ("logits", "num_layers"):
        np.testing.assert_allclose(early[name], expected[name], atol=1e-5)
    assert np.abs(early["logits"] - model(batch)).max() > 1e-3
    with pytest.raises(UsageError, match="exit: layers must be from 1 to"):
        compile_head(model, "text_classifier", "layers:99")
