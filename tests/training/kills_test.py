"""A run of either command that is killed at any moment ends as one that is not."""

import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.training import runs
from tests.training.runs import assert_same_run, execute, family, lines_of

MANY = {"num_train_steps": 60, "eval_steps": 20, "save_checkpoints_steps": 10}
MANY |= {"log_steps": 5, "optimizer": "lamb"}
PRETRAINING = {
    f"{precision}, {'packed' if packing else 'not packed'}": (precision, packing)
    for precision in ("float32", "bfloat16")
    for packing in (False, True)
}
PRETRAINING["float32, packed, spans"] = ("float32", True)
PRETRAINING["float32, packed, electra"] = ("float32", True)
CASES = [*PRETRAINING, *runs.FAMILIES]


@pytest.fixture
def job(request, tmp_path, longer, records):
    """A command, its settings, and its folders if it is left alone and if killed."""
    if request.param in PRETRAINING:
        precision, packing = PRETRAINING[request.param]
        others = {"spans": "spanbert", "electra": "electra"}
        learned = others.get(request.param.rpartition(", ")[2])
        unlabelled = {"pair_policy": "none"} if learned else {}
        data = str(runs.RECORDS)
        if packing:
            data = records(max_seq_length=128, **unlabelled)
        values = runs.pretraining(tmp_path, input_file=data, eval_file=data, **MANY)
        values |= {"precision": precision, "packing": packing}
        if packing:
            values["max_predictions_per_seq"] = None
        if learned:
            values["objective"] = learned
        if learned == "electra":
            values |= {"generator_size": 0.5, "embedding_sharing": "disentangled"}
            values |= {"keep_best": "rtd_auc", "optimizer": "adamw"}
        command = "pretrain"
    else:
        command, values = "finetune", family(request.param, tmp_path, longer)
    folders = [str(tmp_path / name) for name in ("whole", "killed")]
    return command, *({**values, "output_dir": folder} for folder in folders)


def assert_same(whole, killed):
    assert_same_run(*(pathlib.Path(x["output_dir"]) for x in (whole, killed)))


@pytest.mark.broad
@pytest.mark.parametrize("job", CASES, indirect=True)
def test_moments_that_matter(job):
    command, whole, killed = job
    execute(command, whole)
    evaluation, moments = "pretraining evaluation", ["step", "checkpoint"]
    if command == "finetune":
        evaluation = "evaluation"
        moments += ["best weights"]
    counts = {evaluation: 2, "checkpoint again": 2}
    for moment in (*moments, evaluation, "checkpoint again", "model"):
        name = moment.removesuffix(" again")
        execute(command, killed, name, counts.get(moment, 1))
    execute(command, killed)
    assert_same(whole, killed)


@pytest.mark.broad
@pytest.mark.parametrize("job", CASES, indirect=True)
def test_ten_random_kills(job, request):
    command, whole, killed = job
    # The time from the first sign of a run to its end is that of an uninterrupted one.
    process = begin_run(command, whole)
    began = time.monotonic()
    assert process.wait(900) == 0
    seconds = time.monotonic() - began
    rng = random.Random(request.node.name)
    kills = 0
    for _ in range(40):
        process = begin_run(command, killed)
        try:
            process.wait(rng.uniform(0.0, 0.8) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        assert code in (0, -signal.SIGKILL)
        kills += code == -signal.SIGKILL
        if code == 0:
            # It came to its end first, because the machine has become faster; the next
            # kill needs a run to interrupt.
            seconds *= 0.7
            assert_same(whole, killed)
            shutil.rmtree(killed["output_dir"])
        if kills == 10:
            break
    assert kills == 10
    execute(command, killed)
    assert_same(whole, killed)


def begin_run(command, values):
    """Starts a run in a process, and returns it as soon as it works in its folder.

    That is when it is done with imports and input files: it takes the folder's lock.
    """
    lock = pathlib.Path(values["output_dir"]) / ".lock"
    process = runs.start(command, values)
    deadline = time.monotonic() + 300
    while process.poll() is None and owner_of(lock) != process.pid:
        assert time.monotonic() < deadline, "the run does not begin"
        time.sleep(0.01)
    return process


def owner_of(lock):
    """Returns the process that wrote a lock; a killed one leaves its lock behind."""
    try:
        return json.loads(lock.read_text())["process"]
    except FileNotFoundError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.broad)]
)
def test_a_command_that_is_ended_continues_to_the_same_bits(tmp_path, asked, capfd):
    """First it is asked to end, then it is killed."""
    lengths = {"num_train_steps": 30, "log_steps": 3, "eval_steps": 12}
    lengths |= {"save_checkpoints_steps": 4, "learning_rate": 0.00176}
    whole = runs.pretraining(tmp_path, eval_file=runs.RECORDS, **lengths)
    stopped = tmp_path / "stopped"
    given = {**whole, "output_dir": str(stopped)}

    def end(step, number):
        command = runs.command_line("pretrain", given)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        runs.wait_for_step(stopped, step, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert not (stopped / "model").exists()
        return process.returncode, errors

    code, errors = end(3, asked)
    assert code == 128 + asked, errors
    last = errors.splitlines()[-1]
    found = re.match(r"stopped at step (\d+) of 30; the same command", last)
    assert (stopped / f"checkpoints/step-{found[1]}.index").exists()
    assert (stopped / "report.html").exists()
    assert end(12, signal.SIGKILL)[0] == -signal.SIGKILL
    pretrain(PretrainSettings(**given))
    assert "continuing from step" in capfd.readouterr().err
    pretrain(PretrainSettings(**whole))
    assert_same_run(tmp_path / "run", stopped)
    assert len(lines_of(stopped, "eval")) == 3
    # Again: the run is complete, and nothing is touched.
    model = stopped / "model/model.safetensors"
    before = model.stat().st_mtime_ns
    pretrain(PretrainSettings(**given))
    assert model.stat().st_mtime_ns == before
