"""`--grow`: a run that begins with a smaller model, only when asked."""

import dataclasses
import json

import numpy as np
import pytest

import albert_tf
from albert_tf.converters.load import open_checkpoint
from albert_tf.errors import UsageError
from albert_tf.storage import hubs
from albert_tf.training import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.training.pretraining.pretrain_test import CONFIG, GOLDEN, RECORDS


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    config = albert_tf.AlbertConfig.from_dict(CONFIG)
    path = tmp_path_factory.mktemp("small") / "model"
    albert_tf.save_pretrained(albert_tf.AlbertPretrainer(config, seed=5), path)
    return path


def settings(folder, **changes):
    larger = folder / "config.json"
    sizes = {key: changes.pop(key) for key in list(changes) if key in CONFIG}
    larger.write_text(json.dumps({**CONFIG, "num_hidden_layers": 5, **sizes}))
    return PretrainSettings(
        input_file=str(RECORDS),
        spm_model_file=str(GOLDEN / "tokenization/spiece.model"),
        albert_config_file=changes.pop("albert_config_file", str(larger)),
        output_dir=str(folder / "run"),
        max_seq_length=128,
        max_predictions_per_seq=20,
        train_batch_size=2,
        num_train_steps=1,
        num_warmup_steps=0,
        **changes,
    )


def test_another_depth_is_refused_unless_asked_for(small, tmp_path):
    given = settings(tmp_path, init_checkpoint=str(small))
    with pytest.raises(UsageError) as error:
        pretrain.pretrain(given)
    assert "num_hidden_layers=2, not 5; --grow allows it" in str(error.value)
    assert not (tmp_path / "run").exists()
    given = settings(tmp_path, init_checkpoint=str(small), hidden_size=14)
    with pytest.raises(
        UsageError, match="hidden_size=12, not 14; num_hidden_layers"
    ) as e:
        pretrain.pretrain(given)
    assert "--grow" not in str(e.value)
    given = settings(tmp_path, init_checkpoint=str(small), hidden_size=14, grow=True)
    with pytest.raises(UsageError, match="cannot grow into another size.*=12, not 14"):
        pretrain.pretrain(given)
    with pytest.raises(UsageError, match="--grow requires --init_checkpoint"):
        settings(tmp_path, grow=True)


def test_the_config_is_that_of_the_checkpoint(small, tmp_path):
    given = settings(tmp_path, init_checkpoint=str(small), albert_config_file="")
    with open_checkpoint(str(small)) as start:
        assert pretrain.pretrain_inputs.load_config(given, start) == start.config
    pretrain.pretrain(given)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["content"]["config"]["num_hidden_layers"] == 2
    for changes in ({"grow": True}, {"init_checkpoint": ""}, {"preset": "albert_base"}):
        wrong = {"albert_config_file": "x" if "preset" in changes else "", **changes}
        with pytest.raises(UsageError, match="exactly one of --preset and --albert_c"):
            dataclasses.replace(given, **wrong)


def test_a_grown_model_is_trained(small, tmp_path, monkeypatch):
    found = hubs.Download(str(small), "hf://owner/small@0123")
    monkeypatch.setattr(hubs, "download", {"hf://owner/small": found}.get)
    given = settings(tmp_path, init_checkpoint="hf://owner/small", grow=True)
    folder = pretrain.pretrain(given)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["init_checkpoint"] == found.origin
    trained = albert_tf.from_pretrained(folder, head="pretraining")
    assert trained.config.num_hidden_layers == 5
    with open_checkpoint(str(small)) as start:
        name = "backbone/encoder/ffn_0/output/kernel"
        before = start.tensors[name].read()
    after = trained.backbone.encoder.ffns[0].get_weights()[2]
    moved = np.abs(after - before).max()
    assert 0 < moved < 0.01  # one step from there
