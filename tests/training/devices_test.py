"""Several devices, micro-batches, bfloat16 and XLA train the same model."""

import json

import numpy as np
import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.models.base import weight_names
from tests.training import runs

EXACT = {
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}


def weights(folder):
    return {n: np.asarray(v) for n, v in weight_names(from_pretrained(folder)).items()}


_BROAD = [pytest.param(x, marks=pytest.mark.broad) for x in runs.FAMILIES[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["texts", *_BROAD])
def test_the_weights_are_the_same(pretrained_as, tmp_path, family):
    settings = {
        **runs.family(family, tmp_path, pretrained_as(**EXACT)),
        "dropout": 0.0,
        "num_train_steps": 6,
        "keep": "last",
        "early_stopping_patience": 0,
    }
    runs.run(tmp_path / "one", **settings)
    runs.run(tmp_path / "accumulated", **settings, gradient_accumulation_steps=2)
    runs.run(tmp_path / "unpacked", **settings, packing=False)
    # Logical devices can only be made before TensorFlow starts.
    two = {"distribution": "mirrored", "num_devices": 2}
    runs.execute("finetune", runs.finetuning(tmp_path / "two", **settings, **two))
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
    results = runs.run(
        tmp_path / "o",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=45,
        **change,
    )
    assert results["dev_accuracy"] > 0.9
