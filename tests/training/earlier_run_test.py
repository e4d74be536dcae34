"""A run that an earlier version began and a signal stopped ends as it would have."""

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


@pytest.fixture
def runs(tmp_path, monkeypatch):
    with tarfile.open(RUNS) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_same(found, expected):
    found, expected = map(safetensors.numpy.load_file, (found, expected))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_a_pretraining_run_is_continued(runs):
    folder = pretrain(
        PretrainSettings(
            input_file="rec/x",
            eval_file="rec/x",
            spm_model_file="tokenizer.json",
            albert_config_file="config.json",
            output_dir="pre",
            max_seq_length=64,
            max_predictions_per_seq=77,
            train_batch_size=4,
            eval_batch_size=4,
            max_eval_steps=3,
            num_train_steps=12,
            num_warmup_steps=2,
            learning_rate=0.01,
            log_steps=2,
            eval_steps=4,
            save_checkpoints_steps=4,
            keep_checkpoint_max=1,
            sample_texts=("a [MASK]",),
            iterations_per_loop=2,
            seed=7,
            allow_other_versions=True,
        )
    )
    assert_same(os.path.join(folder, "model.safetensors"), "pre.safetensors")


@pytest.mark.slow
def test_a_fine_tuning_run_is_continued(runs):
    finetune(
        FinetuneSettings(
            train_file="train.tsv",
            dev_file="dev.tsv",
            from_scratch=True,
            albert_config_file="config.json",
            spm_model_file="tokenizer.json",
            output_dir="fine",
            max_seq_length=32,
            train_batch_size=8,
            learning_rate=5e-3,
            num_train_steps=12,
            num_warmup_steps=2,
            log_steps=2,
            eval_steps=4,
            save_checkpoints_steps=3,
            keep_checkpoint_max=1,
            seed=7,
            allow_other_versions=True,
        )
    )
    assert_same("fine/model.safetensors", "fine.safetensors")
