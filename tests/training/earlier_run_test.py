"""A run that an earlier version began and a signal stopped ends as it would have."""

import json
import os
import pathlib
import tarfile

import numpy as np
import pytest
import safetensors.numpy

from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.seeds import finetune

RUNS = pathlib.Path(__file__).parents[1] / "golden/earlier_runs.tar.xz"


# What does not decide the result, and so is not in the record of a run.
OTHERS = {"log_steps": 2, "eval_steps": 4, "keep_checkpoint_max": 1}
OTHERS |= {"allow_other_versions": True}
PRE = {"eval_file": "rec/x", "eval_batch_size": 4, "max_eval_steps": 3}
PRE |= {"save_checkpoints_steps": 4, "sample_texts": ("a [MASK]",)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pre", "fine"])
def test_a_run_is_continued(name, tmp_path, monkeypatch):
    with tarfile.open(RUNS) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    recorded = json.loads((tmp_path / name / "run.json").read_text())["settings"]
    recorded = {k: tuple(v) if type(v) is list else v for k, v in recorded.items()}
    given = {**recorded, "output_dir": name, **OTHERS}
    if name == "pre":
        folder = pretrain(PretrainSettings(**given, **PRE))
    else:
        del given["search"]  # a setting that is gone
        folder = "fine"
        finetune(FinetuneSettings(**given, save_checkpoints_steps=3))
    found, expected = map(
        safetensors.numpy.load_file,
        (os.path.join(folder, "model.safetensors"), f"{name}.safetensors"),
    )
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, atol=1e-4, err_msg=key)
