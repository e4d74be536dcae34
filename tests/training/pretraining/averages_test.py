"""`--ema_decay`: evaluated, saved, resumed and exported by a whole run."""

import gc
import json

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import UsageError
from albert_tf.training import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from tests.training.pretraining.pretrain_test import CONFIG, GOLDEN, RECORDS

NAME = "backbone/encoder/ffn_0/output/kernel"


def settings(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    values = {
        "ema_decay": 0.9,
        "export_weights": "average",
        "num_train_steps": 6,
        "output_dir": str(folder / "run"),
        "eval_steps": 3,
        **changes,
    }
    return PretrainSettings(
        input_file=str(RECORDS),
        eval_file=str(RECORDS),
        spm_model_file=str(GOLDEN / "tokenization/spiece.model"),
        albert_config_file=str(folder / "config.json"),
        max_seq_length=128,
        max_predictions_per_seq=20,
        train_batch_size=2,
        eval_batch_size=8,
        max_eval_steps=1,
        save_checkpoints_steps=2,
        num_warmup_steps=1,
        learning_rate=0.01,
        **values,
    )


def read(run, group):
    reader = tf.train.load_checkpoint(str(run / "checkpoints"))
    escaped = NAME.replace("/", ".S")
    return reader.get_tensor(f"{group}/{escaped}/.ATTRIBUTES/VARIABLE_VALUE")


def kernel(path):
    model = albert_tf.from_pretrained(path, head="pretraining")
    return model.backbone.encoder.ffns[0].get_weights()[2]


def evaluations(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["split"] == "eval"]


def stop_after(monkeypatch, step):
    save = TrainingCheckpoints.save

    def save_and_stop(self, wait=False):
        save(self, wait)
        if self.step == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingCheckpoints, "save", save_and_stop)


@pytest.mark.slow
def test_averages_are_evaluated_saved_resumed_and_exported(tmp_path, monkeypatch):
    whole = settings(tmp_path / "whole")
    model = pretrain.pretrain(whole)
    run = tmp_path / "whole/run"
    lines = evaluations(run)
    assert [line["step"] for line in lines] == [3, 6]
    for line in lines:
        assert line["ema_loss"] != line["loss"]
        assert 0 <= line["ema_mlm_accuracy"] <= 1
        assert "ema_mlm_baseline" not in line
    # The model is the average; the checkpoint has both.
    np.testing.assert_array_equal(kernel(model), read(run, "averages"))
    assert np.abs(kernel(model) - read(run, "weights")).max() > 1e-4
    # A run killed after its fourth step ends with the same bits.
    cut = settings(tmp_path / "cut")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 4)
        pretrain.pretrain(cut)
    stopped = tmp_path / "cut/run"
    assert not (stopped / "model").exists()
    # While it is stopped, the run is a model of the weights that it would export.
    np.testing.assert_array_equal(kernel(stopped), read(stopped, "averages"))
    pretrain.pretrain(cut)
    name = "model/model.safetensors"
    assert (stopped / name).read_bytes() == (run / name).read_bytes()
    assert evaluations(stopped) == lines
    name = "samples.jsonl"
    assert (stopped / name).read_bytes() == (run / name).read_bytes()
    found = [json.loads(line) for line in (run / name).read_text().splitlines()]
    assert [(line["step"], line["weights"]) for line in found] == [
        *((3, "last"), (3, "average"), (6, "last"), (6, "average"))
    ]
    assert found[2]["answers"] != found[3]["answers"]
    text = (run / "model/../README.md").read_text()
    assert "decay 0.9; this model has the average" in text
    # Other averages are another run.
    with pytest.raises(UsageError, match="--ema_decay=0.9; received --ema_decay=0.5"):
        pretrain.pretrain(settings(tmp_path / "whole", ema_decay=0.5))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"ema_decay": 1.0}, r"--ema_decay must be in \[0, 1\), received 1.0"),
        ({"ema_decay": -0.5}, "--ema_decay must be .*received -0.5"),
        ({"ema_decay": 0.0}, "--export_weights=average requires an --ema_decay, rec"),
        ({"export_weights": "best"}, "must be one of last, average, received 'best'"),
    ],
)
def test_nonsense_is_refused(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        settings(tmp_path, **changes)


def test_a_run_without_the_setting_goes_on():
    assert PretrainSettings.defaults()["ema_decay"] == 0
    assert PretrainSettings.defaults()["export_weights"] == "last"


@pytest.mark.slow
def test_a_long_run_does_not_grow(tmp_path, monkeypatch):
    """Evaluations, checkpoints, best models and answers leave nothing in memory."""
    counts = []
    record = Progress.record

    def record_and_count(self, split, step, values):
        record(self, split, step, values)
        if split == "eval":
            gc.collect()
            counts.append(len(gc.get_objects()))

    monkeypatch.setattr(Progress, "record", record_and_count)
    changes = {"num_train_steps": 20, "eval_steps": 2, "keep_best": "loss"}
    pretrain.pretrain(settings(tmp_path, **changes))
    # The first evaluations compile. Lines of metrics stay, 50 objects at a time; a
    # data set would be 2,000.
    assert len(counts) == 10 and max(np.diff(counts)[3:]) < 500
