"""Models to start from, tables and finished runs, made once."""

import functools
import subprocess

import pytest
import tensorflow as tf

from albert_tf.converters.load import save_pretrained
from albert_tf.models.masked_lm import AlbertPretrainer
from tests.training import runs


@pytest.fixture
def eagerly():
    """Steps and evaluations have no graph, whose tracing takes longer than a few."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {
        "train_file": runs.write_table(folder / "train.tsv", 200, seed=1),
        "dev_file": runs.write_table(folder / "dev.tsv", 50, seed=2),
    }


@pytest.fixture(scope="session")
def pretrained_as(tmp_path_factory, tokenizer):
    """Saves a pretrained model, once: `pretrained_as(num_hidden_layers=3)`."""

    @functools.cache
    def make(**changes):
        path = tmp_path_factory.mktemp("pretrained") / "model"
        model = AlbertPretrainer(runs.CONFIG.replace(**changes), seed=3)
        save_pretrained(model, path, tokenizer=tokenizer)
        return str(path)

    return make


@pytest.fixture(scope="session")
def pretrained(pretrained_as):
    return pretrained_as()


@pytest.fixture(scope="session")
def longer(pretrained_as):
    """A model for rows of 64 tokens."""
    return pretrained_as(max_position_embeddings=64)


@pytest.fixture(scope="session")
def finished(tables, pretrained, tmp_path_factory):
    """A fine-tuning run and its results."""
    output_dir = tmp_path_factory.mktemp("run") / "model"
    arguments = {**tables, "init_checkpoint": pretrained}
    return output_dir, runs.run(output_dir, test_file=tables["dev_file"], **arguments)


# Of the runs of `pretrain` that are stopped and killed.
LONG = {"num_train_steps": 30, "num_warmup_steps": 2, "log_steps": 3, "eval_steps": 12}
LONG |= {"save_checkpoints_steps": 4, "eval_batch_size": 26, "learning_rate": 0.00176}
LONG |= {"eval_file": str(runs.RECORDS)}


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A pretraining run that nothing disturbed, and its settings."""
    values = runs.pretraining(tmp_path_factory.mktemp("whole"), **LONG)
    command = runs.command_line("pretrain", values)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return values
