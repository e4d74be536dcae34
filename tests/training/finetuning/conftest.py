"""A pretrained model, tables and one finished run, made once."""

import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.training.finetuning.runs import CONFIG, SPM_MODEL, run, write_table


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {
        "train_file": write_table(folder / "train.tsv", 200, seed=1),
        "dev_file": write_table(folder / "dev.tsv", 50, seed=2),
    }


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("pretrained") / "model"
    model = AlbertPretrainer(CONFIG, seed=3)
    save_pretrained(model, path, tokenizer=AlbertTokenizer(SPM_MODEL))
    return str(path)


@pytest.fixture(scope="session")
def finished(tables, pretrained, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("run") / "model"
    arguments = {**tables, "init_checkpoint": pretrained}
    results = run(output_dir, test_file=tables["dev_file"], **arguments)
    return output_dir, results
