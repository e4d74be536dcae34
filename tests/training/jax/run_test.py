"""Whole runs on JAX: as on TensorFlow, killed, continued, on two workers."""

import json
import pathlib
import shutil
import signal

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.converters.load import save_pretrained
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.reports.run_page import draw_run
from albert_tf.storage.streams import find_checkpoints
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.training import runs
from tests.training.cluster import (
    EXACT,
    assert_close,
    begin_all,
    finish,
    pretraining,
    refused,
)
from tests.training.runs import assert_same_run, execute, wait_for_step

pytestmark = pytest.mark.slow
pytest.importorskip("jax")


def on_jax(values):
    return {**values, "backend": "jax"}


@pytest.fixture(scope="module")
def values(tmp_path_factory, tokenizer):
    """Returns the settings of a run: both engines start from the same weights."""
    start = tmp_path_factory.mktemp("start") / "model"
    config = AlbertConfig.from_dict({**runs.SIZES, **EXACT})
    save_pretrained(AlbertPretrainer(config, seed=7), start, tokenizer=tokenizer)
    given = {"init_checkpoint": str(start)}
    given |= {"ema_decay": 0.9, "keep_best": "ema_loss", "max_eval_steps": 2}
    given |= {"export_weights": "average", "gradient_accumulation_steps": 2}

    def make(folder, name, **changes):
        return pretraining(folder, name, **given, **changes)

    return make


@pytest.fixture(scope="module")
def whole(values, tmp_path_factory):
    """Returns the folders of the run on TensorFlow and on JAX."""
    folder = tmp_path_factory.mktemp("whole")
    profiled = {"profile_steps": ("2", "3")}
    settings = PretrainSettings(**values(folder, "tensorflow"), **profiled)
    pretrain(settings, draw_run)
    profiled["compilation_cache"] = str(folder / "programs")
    execute("pretrain", on_jax(values(folder, "jax", **profiled)))
    return folder / "tensorflow", folder / "jax"


def test_a_run_is_that_of_tensorflow(whole):
    for model in ("model", "best"):
        assert_close(*whole, f"{model}/model.safetensors")
    names = [{p.name for p in folder.iterdir()} for folder in whole]
    assert names[0] == names[1]
    records = [json.loads((folder / "run.json").read_text()) for folder in whole]
    assert [r["settings"]["backend"] for r in records] == ["tensorflow", "jax"]
    for folder in whole:
        (trace,) = folder.glob("tensorboard/plugins/profile/*/*.xplane.pb")
        assert trace.stat().st_size
    assert list(whole[1].parent.glob("programs/jit_*"))


def test_a_killed_run_continues_to_the_same_bits_or_on_the_other_engine(
    whole, values, tmp_path
):
    programs = {"compilation_cache": str(whole[1].parent / "programs")}
    given = on_jax(values(tmp_path, "run", **programs))
    execute("pretrain", given, "checkpoint", 2)  # the first one is whole by then
    assert find_checkpoints(tmp_path / "run/checkpoints")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    execute("pretrain", given)
    assert_same_run(whole[1], tmp_path / "run")
    assert_continued(whole, values(tmp_path, "other"), "jax")


def assert_continued(whole, given, first):
    execute("pretrain", given)
    run = pathlib.Path(given["output_dir"])
    assert_close(whole[0], run, "model/model.safetensors")
    record = json.loads((run / "run.json").read_text())
    assert record["changed_from"] == [{"backend": first}]


@pytest.mark.broad
def test_killed_in_a_step_or_begun_by_tensorflow(whole, values, tmp_path):
    given = values(tmp_path, "run")
    execute("pretrain", on_jax(given), "step", 2)
    execute("pretrain", on_jax(given))
    assert_same_run(whole[1], tmp_path / "run")
    given = values(tmp_path, "other")
    execute("pretrain", given, "checkpoint", 2)
    assert_continued(whole, on_jax(given), "tensorflow")


def test_two_workers_equal_one_device(whole, values, tmp_path):
    given = on_jax(values(tmp_path, "two", shard_optimizer=True))
    finish(*begin_all("pretrain", given, 2))
    assert_close(whole[1], tmp_path / "two", "model/model.safetensors")
    # What others began is removed.
    left = {
        path.name.split(".")[0] for path in (tmp_path / "two/checkpoints").iterdir()
    }
    assert left == {"checkpoint", "step-4", "step-6"}


@pytest.mark.broad
@pytest.mark.parametrize("victim, number", [(0, 9), (1, 9), (1, signal.SIGSTOP)])
def test_a_worker_that_dies_or_hangs_ends_the_others(values, tmp_path, victim, number):
    given = on_jax(values(tmp_path, "run", num_train_steps=400, eval_steps=400))
    processes = begin_all("pretrain", given, 2)
    wait_for_step(tmp_path / "run", 10, *processes)
    lost = processes.pop(victim)
    lost.send_signal(number)
    # JAX itself ends those that lose the first one, which coordinates.
    (line,) = refused(*processes, timeout=150)
    lost.kill()
    assert "another worker of the run does not answer" in line


@pytest.mark.broad
def test_a_worker_that_is_asked_to_end_ends_both(values, tmp_path):
    given = on_jax(values(tmp_path, "run", num_train_steps=2000, eval_steps=2000))
    processes = begin_all("pretrain", given, 2)
    wait_for_step(tmp_path / "run", 10, *processes)
    processes[1].send_signal(signal.SIGTERM)
    for process in processes:
        _, errors = process.communicate(timeout=150)
        assert process.returncode == 143, errors[-3000:]
        assert "stopped at step" in errors


@pytest.mark.parametrize(
    ("family", "devices"),
    [
        ("choices", 2),
        *(pytest.param(x, 1, marks=pytest.mark.broad) for x in ("texts", "spans")),
    ],
)
def test_fine_tuning_is_that_of_tensorflow(
    pretrained_as, model_folder, tmp_path, family, devices
):
    sizes = {"max_position_embeddings": 64, "classifier_dropout_prob": 0.0}
    given = runs.family(family, tmp_path, pretrained_as(**sizes, **EXACT))
    given |= {"dropout": 0.0, "early_stopping_patience": 0}
    # A new head has other initial values on each engine.
    runs.run(tmp_path / "start", **{**given, "num_train_steps": 2})
    given |= {"init_checkpoint": str(tmp_path / "start")}
    if family == "choices":
        given |= {"teacher": model_folder("multiple_choice"), "teacher_weight": 0.5}
    runs.run(tmp_path / "tensorflow", **given)
    if devices > 1:
        given |= {"distribution": "mirrored", "num_devices": devices}
    execute("finetune", on_jax({**given, "output_dir": str(tmp_path / "jax")}))
    assert_close(tmp_path / "tensorflow", tmp_path / "jax")
    if devices == 1:  # else as above, where a run is killed
        again = on_jax({**given, "output_dir": str(tmp_path / "again")})
        execute("finetune", again, "best weights")
        execute("finetune", again)
        assert_same_run(tmp_path / "jax", tmp_path / "again")
