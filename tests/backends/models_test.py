"""Models compute what they compute with TensorFlow, and pass between backends."""

import os

import keras
import numpy as np
import pytest

import albert_tf
from tests.backends import exchange
from tests.models.golden_tf1_test import GOLDEN, assert_close


@pytest.mark.parametrize("writer", ["tensorflow", "here"])
def test_every_head_and_format_passes_between_backends(writer, run_python, tmp_path):
    def run(what):
        done = run_python(exchange.__file__, what, tmp_path, KERAS_BACKEND="tensorflow")
        assert done.returncode == 0, done.stderr[-3000:]

    if writer == "tensorflow":
        run("write")
        exchange.read(tmp_path)
    else:
        exchange.write(tmp_path)
        run("read")


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


WITHOUT = """
import sys
for name in ("tensorflow", "tensorflow_text", "keras_hub"):
    sys.modules[name] = None
import pathlib
from tests.backends import exchange
folder = pathlib.Path(sys.argv[1])
exchange.write(folder)
exchange.read(folder)
"""


def test_texts_and_files_without_tensorflow(run_python, tmp_path):
    backend = os.environ["KERAS_BACKEND"]
    done = run_python("-c", WITHOUT, tmp_path, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr[-3000:]
