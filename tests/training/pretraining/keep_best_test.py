"""`--keep_best`: the model of the best evaluation, beside the last checkpoints."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import DataError, UsageError
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.storage import folders
from albert_tf.training import pretrain
from albert_tf.training.callbacks import KeepModel, check_metric
from albert_tf.training.pretrain_batches import RunBatches
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from albert_tf.training.tensorflow.step import TrainStep
from tests import tiny
from tests.training.pretraining.averages_test import settings, stop_after

EXAMPLES = {"records": "ab" * 32, "rows": 8, "masked_lm_prob": 0.15, "max_ngram": 3}


def keeper(folder, model, metric, tokenizer, ema_decay=0.0, examples=EXAMPLES):
    optimizer = create_optimizer(
        "adamw", learning_rate=0.1, num_train_steps=5, ema_decay=ema_decay
    )
    step = TrainStep(model, ALBERT, optimizer, tf.distribute.get_strategy())
    averages = WeightAverages(model, optimizer)
    for average in averages.averages.values():
        average.assign(average + 0.25)
    return KeepModel(str(folder), metric, step, averages, tokenizer, examples)


def read(folder):
    return json.loads((folder / "best.json").read_text())


def bias(folder):
    return albert_tf.from_pretrained(folder).get_weights()[-1]


def test_the_best_model_is_kept_and_survives(tmp_path, tokenizer, caplog):
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    last = model.trainable_variables[-1]
    best = keeper(tmp_path / "best", model, "loss", tokenizer)
    best.on_evaluate(1, {"loss": float("nan")})
    assert "the loss of step 1 is nan: the model is not kept" in caplog.text
    for step, loss in ((2, 3.0), (4, 1.5), (6, 2.0)):
        last.assign(np.full(last.shape, step))
        best.on_evaluate(step, {"loss": loss, "mlm_accuracy": 0.5})
    kept = {"metric": "loss", "value": 1.5, "step": 4, "evaluated_on": EXAMPLES}
    assert read(tmp_path / "best") == kept
    assert bias(tmp_path / "best").tolist() == [4, 4]
    # A run continued from a checkpoint of step 3 repeats steps 4 and 6.
    again = keeper(tmp_path / "best", model, "loss", tokenizer)
    before = (tmp_path / "best/best.json").stat().st_mtime_ns
    for step, loss in ((4, 1.5), (6, 2.0), (8, 1.5)):
        again.on_evaluate(step, {"loss": loss})
    assert (tmp_path / "best/best.json").stat().st_mtime_ns == before
    last.assign(np.full(last.shape, 10))
    again.on_evaluate(10, {"loss": 1.25})
    assert bias(tmp_path / "best").tolist() == [10, 10]
    # Another metric begins anew.
    other = keeper(tmp_path / "best", model, "mlm_accuracy", tokenizer)
    other.on_evaluate(12, {"loss": 9.0, "mlm_accuracy": 0.125})
    kept |= {"metric": "mlm_accuracy", "value": 0.125, "step": 12}
    assert read(tmp_path / "best") == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best"
    ]  # nothing half-written


def test_numbers_of_other_examples_are_not_compared(tmp_path, tokenizer, caplog):
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    keeper(tmp_path, model, "loss", tokenizer).on_evaluate(2, {"loss": 1.0})
    for change in ({"rows": 4}, {"records": "cd" * 32}, {"masked_lm_prob": 0.1}):
        examples = EXAMPLES | change
        caplog.clear()
        best = keeper(tmp_path, model, "loss", tokenizer, examples=examples)
        (warning,) = caplog.messages
        assert "best.json: was measured on other examples, records=" in warning
        assert f"rows={examples['rows']} masked_lm_prob=" in warning
        assert "max_ngram=3; the next evaluation replaces it" in warning
        best.on_evaluate(4, {"loss": 9.0})
        best.on_evaluate(6, {"loss": 9.5})
        assert read(tmp_path)["evaluated_on"] == examples
        assert (read(tmp_path)["step"], read(tmp_path)["value"]) == (4, 9.0)
    # A folder of an earlier version, which did not record them, is compared with.
    caplog.clear()
    record = read(tmp_path)
    del record["evaluated_on"]
    (tmp_path / "best.json").write_text(json.dumps(record))
    (tmp_path / "manifest.json").unlink()
    folders.FolderWriter(str(tmp_path)).write_manifest()
    keeper(tmp_path, model, "loss", tokenizer).on_evaluate(8, {"loss": 9.25})
    assert read(tmp_path) == record and not caplog.messages
    (tmp_path / "model.safetensors").write_bytes(b"")  # a damaged one is replaced
    keeper(tmp_path, model, "loss", tokenizer).on_evaluate(10, {"loss": 9.5})
    assert "model.safetensors: is not the file" in caplog.text
    assert read(tmp_path)["step"] == 10 and len(bias(tmp_path)) == 2


def test_a_metric_of_the_averages_keeps_the_averages(tmp_path, tokenizer):
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    best = keeper(tmp_path / "best", model, "ema_loss", tokenizer, ema_decay=0.9)
    raw = model.get_weights()[-1]
    best.on_evaluate(2, {"loss": 1.0, "ema_loss": 2.0})
    np.testing.assert_array_equal(bias(tmp_path / "best"), [0.25, 0.25])
    np.testing.assert_array_equal(model.get_weights()[-1], raw)


def test_metrics_that_cannot_be(tmp_path, tokenizer):
    for metric in ("loss", "mlm_loss", "sop_accuracy"):
        check_metric(metric, ALBERT, with_averages=False)
    check_metric("ema_mlm_accuracy", ALBERT, with_averages=True)
    with pytest.raises(UsageError, match="--keep_best must be one of loss, mlm_loss, "):
        check_metric("accuracy", ALBERT, with_averages=False)
    with pytest.raises(UsageError, match="received 'ema_loss'"):
        check_metric("ema_loss", ALBERT, with_averages=False)
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    best = keeper(tmp_path / "best", model, "sop_loss", tokenizer)
    with pytest.raises(UsageError, match="no such metric, only loss, mlm_loss"):
        best.on_evaluate(2, {"loss": 1.0, "mlm_loss": 1.0})
    with pytest.raises(UsageError, match="--keep_best requires --eval_file, received"):
        PretrainSettings(
            input_file="a",
            output_dir="b",
            spm_model_file="c",
            preset="d",
            keep_best="loss",
        )


@pytest.mark.slow
def test_a_run_keeps_its_best_beside_one_checkpoint(tmp_path, monkeypatch, caplog):
    losses = {2: 5.0, 4: 3.0, 6: 4.0}

    def make_evaluate(self, step, strategy, averages):
        return lambda: {"loss": losses[int(step.optimizer.iterations.numpy())]}

    monkeypatch.setattr(RunBatches, "make_evaluate", make_evaluate)
    monkeypatch.setattr(type(ALBERT), "describe", lambda self, step, values: "")
    monkeypatch.setattr(pretrain.outputs, "write_outputs", lambda *args: None)
    given = settings(
        tmp_path,
        keep_best="loss",
        ema_decay=0.0,
        export_weights="last",
        keep_checkpoint_max=1,
        eval_steps=2,
    )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 4)
        pretrain.pretrain(given)
    run = tmp_path / "run"
    assert read(run / "best")["step"] == 2  # stopped before the evaluation of step 4
    pretrain.pretrain(given)
    record = read(run / "best")
    # One batch of eight examples.
    evaluated_on = record.pop("evaluated_on")
    assert evaluated_on.pop("records")
    assert evaluated_on == {"rows": 8, "masked_lm_prob": 0.15, "max_ngram": 3}
    assert record == {"metric": "loss", "value": 3.0, "step": 4}
    assert [p.name for p in run.glob("checkpoints/*.index")] == ["step-6.index"]
    best = albert_tf.from_pretrained(run / "best", head="pretraining")
    last = albert_tf.from_pretrained(run / "model", head="pretraining")
    assert not best.untrained_weights
    kernels = [model.backbone.pooler.get_weights()[0] for model in (best, last)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0
    # After a power cut and kills, the same command makes the model again, and tidies.
    weights = run / "model/model.safetensors"
    before = weights.read_bytes()
    names = sorted(path.name for path in run.iterdir())
    weights.write_bytes(b"")
    os.rename(run / "best", run / ".best.old-0123abcd")
    for name in (".best.tmp-0123abcd", "model.old-0123abcd"):
        (run / name).mkdir()
    (run / ".run.json.0123abcd.partial").touch()
    (run / ".lock").write_text("{}")
    (run / "best.old-20240131").mkdir()  # a user's
    pretrain.pretrain(given)
    assert "made again from the last checkpoint" in caplog.text
    assert weights.read_bytes() == before
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["best.old-20240131", *names]
    )
    # The same, killed while the model is being replaced.
    weights.write_bytes(b"")
    os.rename(run / "model", run / ".model.old-0123abcd")
    pretrain.pretrain(given)
    assert weights.read_bytes() == before
    weights.write_bytes(b"")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(DataError, match="no checkpoint is left to make the model"):
        pretrain.pretrain(given)
