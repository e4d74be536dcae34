"""`tools/pretrain.py` as a person runs it: whole, killed, resumed, and misused."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

import albert_tf
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.training.run_folder_test import edit_version

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
RECORDS = GOLDEN / "tf1_data/seq128_pred20.tfrecord"
STEPS = 30
CONFIG = {
    "vocab_size": 30000,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "albert_config.json"
    path.write_text(json.dumps({**CONFIG, "embedding_size": 8}))
    return path


def command(config_file, output_dir, **changes):
    flags = {
        "input_file": RECORDS,
        "eval_file": RECORDS,
        "spm_model_file": GOLDEN / "tokenization/spiece.model",
        "albert_config_file": config_file,
        "output_dir": output_dir,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "train_batch_size": 4,
        "eval_batch_size": 26,
        "num_train_steps": STEPS,
        "num_warmup_steps": 2,
        "log_steps": 3,
        "eval_steps": 12,
        "save_checkpoints_steps": 4,
        "seed": 7,
        **changes,
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, str(ROOT / "tools/pretrain.py"), *arguments]


def run(*args, **changes):
    return subprocess.run(command(*args, **changes), capture_output=True, text=True)


def metrics(folder):
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("tokens_per_second", None)
    return lines


def send_after(arguments, folder, step, number=signal.SIGKILL):
    """Starts a run and sends it a signal soon after it recorded a step."""
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 300
    while process.poll() is None and time.time() < deadline:
        path = folder / "metrics.jsonl"
        if path.exists() and f'"step": {step},' in path.read_text():
            os.kill(process.pid, number)
            _, errors = process.communicate(timeout=300)
            return process.returncode, errors
        time.sleep(0.01)
    raise AssertionError(f"never reached step {step}")


@pytest.fixture(scope="module")
def whole(config_file, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    result = run(config_file, folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.broad)]
)
def test_a_run_that_is_asked_to_end_saves_and_continues(
    config_file, tmp_path, whole, number
):
    stopped = tmp_path / "stopped"
    code, errors = send_after(command(config_file, stopped), stopped, 3, number)
    assert code == 128 + number, errors
    step = int(re.search(r"stopped at step (\d+) of 30; the same command", errors)[1])
    assert errors.splitlines()[-1].startswith("stopped at step")
    assert (stopped / f"checkpoints/step-{step}.index").exists()
    assert (stopped / "report.html").exists() and not (stopped / "model").exists()
    result = run(config_file, stopped)
    assert result.returncode == 0, result.stderr
    assert f"continuing from step {step}\n" in result.stderr
    model = "model/model.safetensors"
    assert (whole / model).read_bytes() == (stopped / model).read_bytes()
    lines = [line for line in metrics(stopped) if line["split"] != "unfinished"]
    assert metrics(whole) == lines


@pytest.mark.broad
def test_micro_batches_and_devices_may_change_in_a_run(config_file, tmp_path):
    """Not the data: the weights are the same up to rounding."""
    config = json.loads(config_file.read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config_file = tmp_path / "config.json"
    config_file.write_text(json.dumps(config))
    folder, plain = tmp_path / "changed", tmp_path / "plain"
    parts = [
        {"num_train_steps": 4},
        {"num_train_steps": 8, "gradient_accumulation_steps": 2},
        {"num_train_steps": 12, "distribution": "mirrored", "num_devices": 2},
    ]
    common = {"eval_steps": 0, "train_batch_size": 4, "change_num_train_steps": True}
    for changes in parts:
        for one in (folder, plain):
            if one == plain:
                changes = {"num_train_steps": changes["num_train_steps"]}
            result = run(config_file, one, **common, **changes)
            assert result.returncode == 0, result.stderr
    a, b = (
        safetensors.numpy.load_file(one / "model/model.safetensors")
        for one in (folder, plain)
    )
    differences = {name: np.abs(a[name] - b[name]).max() for name in a}
    # Its gradient is zero except for rounding, which the optimizer amplifies.
    differences.pop("backbone/encoder/attention_0/key/bias")
    assert max(differences.values()) < 5e-5, differences


@pytest.mark.slow
def test_killed_run_continues_to_the_same_bits(config_file, tmp_path, whole):
    killed = tmp_path / "killed"
    step = random.Random(3).randrange(9, STEPS - 6, 3)
    send_after(command(config_file, killed), killed, step)
    assert not (killed / "model").exists()
    result = run(config_file, killed)
    assert result.returncode == 0, result.stderr
    assert "continuing from step" in result.stderr
    model = "model/model.safetensors"
    assert (whole / model).read_bytes() == (killed / model).read_bytes()
    # Logging begins anew at the restored step, so a record after it may average over
    # fewer steps; evaluations are the same to the bit.
    evaluations = [m for m in metrics(whole) if m["split"] == "eval"]
    assert evaluations == [m for m in metrics(killed) if m["split"] == "eval"]
    assert [m["step"] for m in metrics(killed)] == [m["step"] for m in metrics(whole)]
    samples = (whole / "samples.jsonl").read_bytes()
    assert samples.count(b"\n") == 3 and b"[MASK]" in samples
    assert samples == (killed / "samples.jsonl").read_bytes()
    for name in ("curves.png", "report.html"):
        assert (whole / name).stat().st_size > 10_000
    assert "held out" in (whole / "README.md").read_text()
    # A third time: the run is complete, and nothing is touched.
    before = (whole / model).stat().st_mtime_ns
    assert run(config_file, whole).returncode == 0
    assert (whole / model).stat().st_mtime_ns == before
    # Another run in the same folder is refused before anything is written.
    result = run(config_file, whole, learning_rate=0.5)
    assert result.returncode == 2
    assert "holds another run" in result.stderr and "0.5" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_run_knows_its_data_by_content_and_may_go_on(config_file, tmp_path):
    data, run_folder = tmp_path / "data.tfrecord", tmp_path / "run"
    data.write_bytes(RECORDS.read_bytes())
    changes = {"num_train_steps": 2, "input_file": data, "eval_steps": 0}
    result = run(config_file, run_folder, **changes)
    assert result.returncode == 0, result.stderr
    # The same data under another name, as after a move.
    moved = {**changes, "input_file": data.rename(tmp_path / "moved.tfrecord")}
    result = run(config_file, run_folder, **moved)
    assert result.returncode == 0, result.stderr
    # A finished run continues on request, and a lower number cannot undo steps.
    longer = {**moved, "num_train_steps": 3, "change_num_train_steps": True}
    result = run(config_file, run_folder, **longer)
    assert result.returncode == 0, result.stderr
    assert "continuing from step 2" in result.stderr
    assert "3 steps of" in (run_folder / "README.md").read_text()
    trained = albert_tf.from_pretrained(run_folder / "checkpoints/step-3", head="auto")
    saved = albert_tf.from_pretrained(run_folder / "model", head="auto")
    for one, other in zip(trained.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    edit_version(run_folder, "keras", "1.0")
    result = run(config_file, run_folder, **{**longer, "num_train_steps": 4})
    assert result.returncode == 2
    assert "the run began with keras 1.0 (here" in result.stderr
    changes["allow_other_versions"] = longer["allow_other_versions"] = True
    result = run(config_file, run_folder, **{**longer, "num_train_steps": 2})
    assert result.returncode == 2
    assert "--num_train_steps must be at least 3" in result.stderr
    # Other data under the same name.
    data.write_bytes(drop_first_record(RECORDS.read_bytes()))
    result = run(config_file, run_folder, **{**changes, "num_train_steps": 3})
    assert result.returncode == 2
    assert "another run, with data: records=" in result.stderr
    assert "Traceback" not in result.stderr


def drop_first_record(content):
    length = int.from_bytes(content[:8], "little")
    return content[12 + length + 4 :]


@pytest.mark.slow
def test_bfloat16_micro_batches_from_a_checkpoint(config_file, tmp_path):
    config = albert_tf.AlbertConfig.from_json(config_file)
    start = albert_tf.AlbertPretrainer(config, seed=5)
    albert_tf.save_pretrained(start, tmp_path / "start")
    result = run(
        config_file,
        tmp_path / "run",
        init_checkpoint=tmp_path / "start",
        precision="bfloat16",
        gradient_accumulation_steps=2,
        optimizer="adamw",
        num_train_steps=3,
        eval_steps=0,
    )
    assert result.returncode == 0, result.stderr
    trained = albert_tf.from_pretrained(tmp_path / "run/model", head="pretraining")
    moved = [
        np.abs(new - old).max()
        for new, old in zip(trained.get_weights(), start.get_weights(), strict=True)
    ]
    # From there, and not far: each step moves a weight by about the learning rate.
    assert 0 < max(moved) < 0.02
    # A checkpoint of another size is refused before anything is written.
    other = albert_tf.AlbertPretrainer(config.replace(intermediate_size=24))
    albert_tf.save_pretrained(other, tmp_path / "other")
    result = run(config_file, tmp_path / "no", init_checkpoint=tmp_path / "other")
    assert result.returncode == 2 and "--init_checkpoint" in result.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    "changes, code, message",
    [
        ({"max_seq_length": 600}, 2, "--max_seq_length must be at most"),
        ({"train_batch_size": 0}, 2, "--train_batch_size must be positive"),
        ({"precision": "float8"}, 2, "--precision must be one of float32"),
        ({"distribution": "cloud"}, 2, "--distribution must be one of"),
        ({"input_file": "nowhere*.tfrecord"}, 1, "nowhere*.tfrecord"),
        ({"spm_model_file": __file__}, 1, "step"),
        ({"max_predictions_per_seq": 5}, 1, "5"),
        ({"bogus": 1}, 2, "--bogus"),
    ],
)
def test_mistakes_cost_one_line(config_file, tmp_path, changes, code, message):
    folder = tmp_path / "run"
    result = run(config_file, folder, **changes)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert not folder.exists()
    if message != "step":
        assert message in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("packing", [False, True])
def test_full_sentences_train_the_masked_lm_alone(config_file, tmp_path, packing):
    tokenizer = AlbertTokenizer(GOLDEN / "tokenization/spiece.model")
    create_pretraining_data(
        Corpus(str(GOLDEN / "tf1_data/input.txt")),
        str(tmp_path / "d/x"),
        tokenizer,
        RecordConfig(pairs=PairConfig("none", 64)),
        num_processes=1,
        progress=False,
    )
    result = run(
        config_file,
        tmp_path / "run",
        input_file=tmp_path / "d",
        eval_file=tmp_path / "d",
        max_seq_length=64,
        num_train_steps=6,
        packing=packing,
    )
    assert result.returncode == 0, result.stderr
    assert "MLM accuracy" in result.stderr and "SOP" not in result.stderr
    for line in metrics(tmp_path / "run"):
        assert line["loss"] == line["mlm_loss"]
        assert not [name for name in line if name.startswith("sop")]
    assert "| held out, step 6 |" in (tmp_path / "run/README.md").read_text()
