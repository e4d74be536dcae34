"""Several devices, micro-batches, bfloat16 and XLA train the same model."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.models.base import weight_names
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.training.finetuning.resume_test import settings_of
from tests.training.finetuning.runs import CONFIG, SPM_MODEL, run

SCRIPT = pathlib.Path(__file__).with_name("killed.py")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "model"
    config = CONFIG.replace(
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )
    model = AlbertPretrainer(config, seed=3)
    save_pretrained(model, path, tokenizer=AlbertTokenizer(SPM_MODEL))
    return str(path)


def weights(folder):
    return {n: np.asarray(v) for n, v in weight_names(from_pretrained(folder)).items()}


_BROAD = [pytest.param(x, marks=pytest.mark.broad) for x in ("words", "choices")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["texts", *_BROAD, pytest.param("questions", marks=pytest.mark.broad)],
)
def test_the_weights_are_the_same(start, tmp_path, family):
    settings = {
        **settings_of(family, tmp_path, start),
        "dropout": 0.0,
        "num_train_steps": 6,
        "keep": "last",
        "early_stopping_patience": 0,
    }
    run(**settings, output_dir=str(tmp_path / "one"))
    run(
        **settings,
        output_dir=str(tmp_path / "accumulated"),
        gradient_accumulation_steps=2,
    )
    run(**settings, output_dir=str(tmp_path / "unpacked"), packing=False)
    # Logical devices can only be made before TensorFlow starts.
    two = {
        **settings,
        "output_dir": str(tmp_path / "two"),
        "distribution": "mirrored",
        "num_devices": 2,
    }
    command = [sys.executable, str(SCRIPT), json.dumps(two), "never", "0"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    known = weights(tmp_path / "one")
    metrics = json.loads((tmp_path / "one" / "metrics.json").read_text())
    for name in ("accumulated", "unpacked", "two"):
        for key, value in weights(tmp_path / name).items():
            np.testing.assert_allclose(value, known[key], atol=5e-5, err_msg=name + key)
        other = json.loads((tmp_path / name / "metrics.json").read_text())
        assert other["step"] == metrics["step"]


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"precision": "bfloat16"}, {"jit_compile": True}])
def test_other_ways_to_compute_learn_too(tables, pretrained, tmp_path, change):
    results = run(
        tmp_path / "o",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=45,
        **change,
    )
    assert results["dev_accuracy"] > 0.9
