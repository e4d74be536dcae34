"""Models are compiled for many rows at a time."""

import gc
import weakref

import numpy as np
import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.errors import UsageError
from albert_tf.inference.bulk.forward import text_forward
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.exits import ElasticClassifier
from albert_tf.models.tensorflow import fast_forward
from tests import exits
from tests.tiny import CONFIG, record_calls

# What `predict` does before a model is loaded.
THREADS = """
import sys
import tensorflow as tf
from albert_tf.inference.bulk import predict
from albert_tf.errors import UsageError
from albert_tf.inference.bulk.forward import use_one_thread_per_call
predict.find_task(sys.argv[1])
predict.model_digest(sys.argv[1])
use_one_thread_per_call(3)
threading = tf.config.threading
found = threading.get_intra_op_parallelism_threads()
print(found, threading.get_inter_op_parallelism_threads())
"""


def make_batch():
    ids = np.arange(5, 45, dtype=np.int32).reshape(4, 10)
    segments = np.tile(np.int32([0] * 6 + [1] * 4), (4, 1))
    mask = np.ones_like(ids)
    mask[1:3, 7:] = 0
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


def test_the_encoder_is_the_fused_one(monkeypatch):
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    batch = make_batch()
    expected = model(batch).numpy()
    calls = record_calls(monkeypatch)
    forward = text_forward(model)
    # The start of each row is not needed.
    found = forward({**batch, "places": np.arange(4) * 10})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not calls


def test_an_exit_rule_is_followed_with_the_fused_encoder():
    model = exits.make_model(num_labels=3)
    batch = make_batch()
    for rule in ("layers:1", "patience:1"):
        expected = ElasticClassifier(model, rule)(batch)["logits"]
        forward = text_forward(model, rule)
        gc.collect()
        np.testing.assert_allclose(forward(batch), expected, atol=1e-5)
    early = text_forward(model, "layers:1")(batch)
    assert np.abs(early - text_forward(model)(batch)).max() > 1e-3
    with pytest.raises(UsageError, match="exit: layers must be from 1 to"):
        text_forward(model, "layers:99")


def test_weights_live_as_long_as_the_function(monkeypatch):
    made, choose = [], fast_forward.choose

    def recorded(*arguments):
        forward = choose(*arguments)
        made.append(weakref.ref(forward))
        return forward

    monkeypatch.setattr(fast_forward, "choose", recorded)
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    forward = text_forward(model)
    gc.collect()
    assert [one() is not None for one in made] == [True]
    expected = model(make_batch()).numpy()
    np.testing.assert_allclose(forward(make_batch()), expected, atol=1e-5)


@pytest.mark.slow
def test_tensorflow_has_not_started_before_threads_are_set(
    tmp_path, tokenizer, run_python
):
    path = str(tmp_path / "model")
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    save_pretrained(model, path, tokenizer=tokenizer)
    done = run_python("-c", THREADS, path)
    assert done.stdout == "1 3\n", done.stderr
