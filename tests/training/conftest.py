"""Models to start from, tables and finished runs, made once."""

import functools

import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.models.masked_lm import AlbertPretrainer
from tests.training import runs


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
