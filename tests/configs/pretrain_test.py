"""The experiments of configs/pretrain/ can be run, each objective on a CPU."""

import pathlib

import pytest

from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.settings import load_experiment
from albert_tf.training.pretrain_settings import PretrainSettings

FOLDER = pathlib.Path(__file__).parents[2] / "configs/pretrain"
PLACES = dict.fromkeys(("input_file", "output_dir", "spm_model_file"), "-")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_a_small_experiment(name):
    path = FOLDER / ("demo.py" if name == "albert" else f"demo_{name}.py")
    settings = PretrainSettings(**PLACES, **load_experiment(path, PretrainSettings))
    assert settings.objective == name and settings.optimizer == "adamw"
    assert settings.ngram == (1 if name == "albert" else 3)
    assert settings.train_batch_size * settings.num_train_steps < 100_000
