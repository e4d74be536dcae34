"""A pretraining run can be used as a model, stopped or finished."""

import json
import shutil

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError
from albert_tf.optimizers.create import create_optimizer
from albert_tf.text.load import load_tokenizer
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.run_folder import RunFolder
from tests.tiny import CONFIG, SPIECE, assert_same_weights


def make_model(step):
    return albert_tf.AlbertPretrainer(CONFIG, seed=step)


@pytest.fixture(scope="module")
def made_run(tmp_path_factory):
    """A run that was stopped after step 4."""
    path = tmp_path_factory.mktemp("runs") / "base"
    folder = RunFolder(
        PretrainSettings(
            input_file="x",
            output_dir=str(path),
            spm_model_file=str(SPIECE),
            preset="albert_base_v2",
            num_train_steps=9,
            num_warmup_steps=0,
        )
    )
    tokenizer = load_tokenizer(SPIECE)
    folder.check_content(
        {
            "config": CONFIG.to_dict(),
            "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        }
    )
    folder.begin()
    shutil.copy(SPIECE, path)
    for step in (2, 4):
        model = make_model(step)
        optimizer = create_optimizer("lamb", learning_rate=0.1, num_train_steps=9)
        optimizer.build(model.trainable_variables)
        optimizer.iterations.assign(step)
        TrainingCheckpoints(path / "checkpoints", model, optimizer, seed=1).save()
    return path


@pytest.fixture
def run(made_run, tmp_path):
    return shutil.copytree(made_run, tmp_path / "run")


def check_is(path, step):
    loaded = albert_tf.from_pretrained(path, head="auto")
    assert isinstance(loaded, albert_tf.AlbertPretrainer)
    assert loaded.config == CONFIG and not loaded.untrained_weights
    assert_same_weights(loaded, make_model(step))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, step", [("", 4), ("checkpoints", 4), ("checkpoints/step-2", 2)]
)
def test_every_path_of_a_stopped_run(run, name, step):
    check_is(run / name, step)
    with load.open_checkpoint(run / name) as checkpoint:
        assert checkpoint.make_tokenizer().sha256 == load_tokenizer(SPIECE).sha256


def test_a_finished_run_is_its_model(run):
    albert_tf.save_pretrained(make_model(9), run / "model")
    check_is(run, 9)
    check_is(run / "checkpoints/step-2", 2)


def test_other_commands_accept_a_run(run, tmp_path):
    fill_mask = albert_tf.FillMask.from_pretrained(run)
    assert len(fill_mask("the [MASK] .")) == 5
    convert_checkpoint(run, tmp_path / "out", "huggingface", verify="none")
    assert_same_weights(albert_tf.from_pretrained(tmp_path / "out"), make_model(4))


def edit_record(run, change):
    record = json.loads((run / "run.json").read_text())
    change(record)
    (run / "run.json").write_text(json.dumps(record))


def test_paths_on_record_are_not_followed(run, tmp_path):
    (run / "spiece.model").unlink()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    path = str(tmp_path / "config.json")
    edit_record(run, lambda record: record["content"].pop("config"))
    edit_record(run, lambda r: r["settings"].update(albert_config_file=path))
    with pytest.raises(DataError, match="run.json: no config of the model is on rec"):
        albert_tf.from_pretrained(run)
    albert_tf.from_pretrained(run, config=CONFIG)
    with load.open_checkpoint(run, config=CONFIG) as checkpoint:
        assert checkpoint.tokenizer is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": {"kind": "other"}}'])
def test_a_record_of_something_else(run, text):
    (run / "run.json").write_text(text)
    with pytest.raises(DataError, match="must be the JSON record of a pretraining run"):
        albert_tf.from_pretrained(run)


def test_a_damaged_config_on_record_names_the_file(run):
    edit_record(run, lambda r: r["content"]["config"].update(hidden_size="wide"))
    with pytest.raises(DataError, match="run.json: hidden_size must be"):
        albert_tf.from_pretrained(run)


def test_a_run_without_a_checkpoint(run):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(DataError, match="has not written a checkpoint yet"):
        albert_tf.from_pretrained(run)
