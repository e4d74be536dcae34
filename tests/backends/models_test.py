"""Models compute what they compute with TensorFlow, and pass between backends."""

import os

import keras
import numpy as np

import albert_tf
from tests.models.golden_tf1_test import GOLDEN, assert_close

WITHOUT = """
import sys
for name in ("tensorflow", "tensorflow_text", "keras_hub"):
    sys.modules[name] = None
import pathlib
from tests.backends import exchange
theirs, own = map(pathlib.Path, sys.argv[1:])
exchange.read_values(theirs)
exchange.read_texts(theirs)
exchange.write_texts(own)
"""


def test_every_head_optimizer_and_format_passes_between_backends(
    run_python, run_forked, tmp_path
):
    """The other backend computes, reads and writes without TensorFlow."""
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    theirs.mkdir()
    own.mkdir()
    exchange = ("-m", "tests.backends.exchange")
    for run, backend, *program in (
        (run_forked, "tensorflow", *exchange, "write", theirs),
        (run_python, os.environ["KERAS_BACKEND"], "-c", WITHOUT, theirs, own),
        (run_forked, "tensorflow", *exchange, "read", own),
    ):
        done = run(*program, KERAS_BACKEND=backend)
        assert done.returncode == 0, done.stderr[-3000:]


def test_outputs_of_the_original():
    model = albert_tf.from_pretrained(GOLDEN)
    io = np.load(GOLDEN / "io.npz")
    out = model(
        {
            "token_ids": io["in/input_ids"],
            "segment_ids": io["in/segment_ids"],
            "padding_mask": io["in/input_mask"],
            "mask_positions": io["in/masked_lm_positions"],
        }
    )
    for name in ("sequence_output", "pooled_output"):
        assert_close(out[name], io[f"out/{name}"])
    log_probs = keras.ops.log_softmax(out["mlm_logits"], axis=-1)
    assert_close(keras.ops.reshape(log_probs, (20, 1000)), io["out/mlm_log_probs"])
