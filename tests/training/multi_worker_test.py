"""Two machines, here two processes, train to the weights of one."""

import contextlib
import json
import re
import signal
import socket

import pytest

from albert_tf.errors import DataError
from albert_tf.training import run
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.training import runs
from tests.training.cluster import (
    EXACT,
    assert_close,
    begin,
    begin_all,
    clusters,
    finish,
    free_ports,
    pretraining,
    refused,
)
from tests.training.runs import assert_same_run, wait_for_step

# Seconds, on busy cores; TensorFlow itself notices within 40.
LIMIT = 150


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run of two workers."""
    folder = tmp_path_factory.mktemp("workers")
    finish(*begin_all("pretrain", pretraining(folder, "two"), 2))
    return folder / "two"


@pytest.mark.slow
def test_two_workers_equal_one_device(two, tmp_path):
    one = tmp_path / "one"
    pretrain(PretrainSettings(**pretraining(tmp_path, "one")))
    assert_close(one, two, "model/model.safetensors")
    samples = [(f / "samples.jsonl").read_text().splitlines() for f in (one, two)]
    for first, second in zip(*(map(json.loads, x) for x in samples), strict=True):
        assert first["step"] == second["step"]
        scores = [
            [score for answer in line["answers"] for _, score in answer["masks"][0]]
            for line in (first, second)
        ]
        assert scores[0] == pytest.approx(scores[1], rel=1e-2)
    # Only the chief's checkpoints are left.
    names = {path.name.split(".")[0] for path in (two / "checkpoints").iterdir()}
    assert names == {"checkpoint", "step-4", "step-6"}


def files_in(folder):
    """The files of a folder, without TensorBoard's."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(x.relative_to(folder)) for x in found if "tfevents" not in x.name}


@pytest.mark.broad
def test_two_workers_fine_tune_and_one_of_them_writes(pretrained_as, tmp_path):
    sizes = {"max_position_embeddings": 64, "classifier_dropout_prob": 0.0}
    values = {
        **runs.family("texts", tmp_path, pretrained_as(**sizes, **EXACT)),
        "dropout": 0.0,
        # The best weights are not the last: they are read back at the end.
        "eval_steps": 2,
        "early_stopping_patience": 0,
    }

    def into(name):
        return {**values, "output_dir": tmp_path / name}

    one, two, three, nothing = (
        tmp_path / x for x in ("one", "two", "three", "nothing")
    )
    finish(begin("finetune", into("one")))
    metrics = json.loads((one / "metrics.json").read_text())
    assert metrics["step"] < metrics["num_train_steps"]
    chief, helper = finish(*begin_all("finetune", into("two"), 2))
    assert json.loads(chief)["step"] == metrics["step"]
    assert json.loads(helper) == {}
    assert_close(one, two)
    assert files_in(one) == files_in(two)
    # With folders of their own it shows who writes what.
    pairs = zip(("three", "nothing"), clusters(2), strict=True)
    finish(*[begin("finetune", into(name), cluster) for name, cluster in pairs])
    assert_close(one, three)
    assert not nothing.exists() or not files_in(nothing)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("--ema_decay", lambda _: 0.5, "--ema_decay (worker 0: 0.0; worker 1: 0.5); g"),
        (
            *("config", lambda config: {**config, "hidden_size": 16}),
            "config hidden_size (worker 0: 12; worker 1: 16)",
        ),
        ("step", lambda _: 6, "step (worker 0: 0; worker 1: 6)"),
    ],
)
def test_what_workers_compare(tmp_path, monkeypatch, name, change, message):
    def share(_, mine):
        if mine is None or name not in mine:
            return [mine]
        return [mine, {**mine, name: change(mine[name])}]

    monkeypatch.setattr(run, "share", share)
    with pytest.raises(DataError) as error:
        pretrain(PretrainSettings(**pretraining(tmp_path)))
    assert f"the workers differ in their {message}" in str(error.value)
    assert not (tmp_path / "run/model").exists()


@pytest.mark.broad
@pytest.mark.parametrize(("count", "victims"), [(2, (1, 0)), (4, (2,))])
def test_a_worker_that_dies_ends_the_others(tmp_path, count, victims):
    """One worker is killed: the others end, and all of them together continue."""
    lengths = {"num_train_steps": 80, "log_steps": 5}
    lengths |= {"save_checkpoints_steps": 10, "eval_steps": 20}
    whole = tmp_path / "whole"
    finish(*begin_all("pretrain", pretraining(tmp_path, "whole", **lengths), count))
    for victim in victims:  # the first worker is the one that writes
        output = tmp_path / f"run-{victim}"
        values = pretraining(tmp_path, output.name, **lengths)
        processes = begin_all("pretrain", values, count)
        wait_for_step(output, 25, *processes)
        processes.pop(victim).kill()
        for line in refused(*processes, timeout=LIMIT):
            assert "another worker of the run does not answer" in line
        finish(*begin_all("pretrain", values, count))
        assert_same_run(whole, output)


@pytest.mark.broad
def test_a_worker_that_is_asked_to_end_ends_all(tmp_path):
    output = tmp_path / "run"
    lengths = {"num_train_steps": 2000, "log_steps": 10, "save_checkpoints_steps": 500}
    processes = begin_all("pretrain", pretraining(tmp_path, **lengths), 2)
    wait_for_step(output, 20, *processes)
    processes[1].send_signal(signal.SIGTERM)
    steps = set()
    for process in processes:
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 143, errors[-3000:]
        steps.add(re.search(r"stopped at step ([\d,]+) of 2,000", errors)[1])
    (step,) = steps  # the same one
    assert (output / f"checkpoints/step-{step.replace(',', '')}.index").exists()


# TensorFlow waits for a worker that answered and then left, with our time limit.
LEAVES = """
from albert_tf.training import workers
from albert_tf.training.tensorflow import strategy
workers.wait_for, strategy._CONNECT_SECONDS = lambda *_: None, 2
try:
    strategy.create_strategy("multi_worker")
except strategy.DataError as e:
    print(e)
"""


@pytest.mark.slow
def test_a_lone_worker_ends_in_time_and_when_asked_to(tmp_path, run_forked):
    ports = free_ports(4)
    configs = clusters(2, ports[:2])[0], clusters(2, ports[2:])[0]
    late, asked = (
        begin("pretrain", pretraining(tmp_path, i, worker_timeout=5 - 5 * int(i)), x)
        for i, x in zip("01", configs, strict=True)
    )
    (line,) = refused(late, timeout=300)
    assert f"no answer from worker 1 (127.0.0.1:{ports[1]}) after 5 s" in line
    waiting = None
    while waiting is None:
        with contextlib.suppress(OSError):
            waiting = socket.create_connection(("127.0.0.1", ports[2]))
        assert asked.poll() is None
    waiting.close()
    asked.send_signal(signal.SIGTERM)
    _, errors = asked.communicate(timeout=20)
    assert asked.returncode == 143, errors
    done = run_forked("-c", LEAVES, timeout=300, TF_CONFIG=configs[1])
    assert "answer, but cannot be connected: " in done.stdout, done.stderr
