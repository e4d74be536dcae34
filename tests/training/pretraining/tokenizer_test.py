"""Case and accents reach the model from the records."""

import json
import pathlib

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.data.prepare.create import create_from_settings
from albert_tf.data.prepare.settings import CreateSettings
from albert_tf.errors import UsageError
from albert_tf.text.train import train_tokenizer
from albert_tf.training import pretrain as pretrain_module
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_inputs import load_run_tokenizer
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.openings import count_openings

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
INPUT = GOLDEN / "tf1_data/input.txt"
MODEL = GOLDEN / "tokenization/spiece.model"
CONFIG = albert_tf.AlbertConfig(
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=64,
)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    settings = CreateSettings(
        input_file=str(INPUT),
        output_file=str(folder / "cased"),
        spm_model_file=str(MODEL),
        do_lower_case=False,
        keep_accents=True,
        max_seq_length=64,
        num_processes=1,
    )
    create_from_settings(settings)
    CONFIG.to_json(folder / "albert_config.json")
    return folder


def _settings(records, **changes):
    values = {
        "input_file": str(records),
        "output_dir": str(records / "run"),
        "spm_model_file": str(MODEL),
        "albert_config_file": str(records / "albert_config.json"),
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "train_batch_size": 4,
        "num_train_steps": 1,
        "num_warmup_steps": 0,
    }
    return PretrainSettings(**{**values, **changes})


def test_the_model_keeps_the_case_of_its_records(records, tmp_path):
    folder = pretrain(_settings(records, output_dir=str(tmp_path / "run")))
    tokenizer = load.load_tokenizer(folder)
    assert not tokenizer.do_lower_case and tokenizer.keep_accents
    assert "case kept, accents kept" in (records / "dataset.md").read_text()


def test_a_flag_that_contradicts_the_records_is_refused(records):
    with pytest.raises(UsageError, match="do_lower_case=false.* received true"):
        load_run_tokenizer(_settings(records, do_lower_case=True))
    assert not load_run_tokenizer(_settings(records, do_lower_case=False)).do_lower_case


def test_held_out_records_of_other_case_are_refused(records, tmp_path):
    card = json.loads((records / "dataset.json").read_text())
    card["settings"]["tokenizer"]["do_lower_case"] = True
    (tmp_path / "dataset.json").write_text(json.dumps(card))
    for file in records.glob("cased*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UsageError, match="do_lower_case"):
        load_run_tokenizer(_settings(records, eval_file=str(tmp_path)))


@pytest.mark.parametrize("change", ["no card", "a card without options"])
def test_old_records_read_as_before(records, tmp_path, change):
    for file in records.glob("cased*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if change != "no card":
        card = json.loads((records / "dataset.json").read_text())
        del card["settings"]["tokenizer"]
        (tmp_path / "dataset.json").write_text(json.dumps(card))
    old = _settings(records, input_file=str(tmp_path))
    assert load_run_tokenizer(old).do_lower_case
    cased = _settings(records, input_file=str(tmp_path), do_lower_case=False)
    assert not load_run_tokenizer(cased).do_lower_case


def test_initial_weights_of_another_tokenizer_are_refused(records, tmp_path):
    lines = INPUT.read_text().splitlines()
    path = tmp_path / "spiece.model"
    train_tokenizer(lines, path, vocab_size=300, progress=False)
    model = albert_tf.AlbertBackbone(CONFIG, seed=1)
    albert_tf.save_pretrained(model, tmp_path / "m", tokenizer=path)
    settings = _settings(records, init_checkpoint=str(tmp_path / "m"))
    with pytest.raises(UsageError, match="is not the tokenizer of"):
        pretrain(settings)


def test_the_initial_checkpoint_is_opened_once(records, tmp_path, monkeypatch):
    path = str(tmp_path / "m")
    model = albert_tf.AlbertPretrainer(CONFIG, seed=1)
    tokenizer = albert_tf.AlbertTokenizer(MODEL, do_lower_case=False, keep_accents=True)
    albert_tf.save_pretrained(model, path, tokenizer=tokenizer)
    settings = _settings(
        records,
        init_checkpoint=path,
        do_lower_case=None,
        output_dir=str(tmp_path / "r"),
    )
    monkeypatch.setattr(pretrain_module.Pretraining, "train", _stop)
    counts = count_openings(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings)
    assert counts == {("open", path): 1, ("verify", path): 1}


def _stop(*unused):
    raise KeyboardInterrupt
