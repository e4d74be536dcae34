"""Two machines, here two processes, train to the weights of one."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
CONFIG = {
    "format": "albert_tf",
    "vocab_size": 30000,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 128,
}


def start(folder, output, distribution, environment=None, **changes):
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG))
    flags = {
        "input_file": GOLDEN / "tf1_data/seq128_pred20.tfrecord",
        "eval_file": GOLDEN / "tf1_data/seq128_pred20.tfrecord",
        "spm_model_file": GOLDEN / "tokenization/spiece.model",
        "albert_config_file": config,
        "output_dir": output,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "train_batch_size": 8,
        "eval_batch_size": 24,
        "num_train_steps": 6,
        "num_warmup_steps": 2,
        "log_steps": 2,
        "eval_steps": 3,
        "save_checkpoints_steps": 4,
        "distribution": distribution,
        **changes,
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools/pretrain.py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def finish(*processes):
    for process in processes:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors[-3000:]


@pytest.mark.slow
def test_two_workers_equal_one_device(tmp_path):
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    one, two = tmp_path / "one", tmp_path / "two"
    finish(start(tmp_path, one, "one_device"))
    clusters = [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        for index in range(2)
    ]
    environments = [{"TF_CONFIG": json.dumps(cluster)} for cluster in clusters]
    finish(*(start(tmp_path, two, "multi_worker", e) for e in environments))
    a, b = (
        safetensors.numpy.load_file(folder / "model/model.safetensors")
        for folder in (one, two)
    )
    differences = {name: np.abs(a[name] - b[name]).max() for name in a}
    # Its gradient is zero except for rounding, which the optimizer amplifies.
    differences.pop("backbone/encoder/attention_0/key/bias")
    assert max(differences.values()) < 5e-5, differences
    lines = [(f / "metrics.jsonl").read_text().splitlines() for f in (one, two)]
    for first, second in zip(*(map(json.loads, x) for x in lines), strict=True):
        for name in ("split", "step"):
            assert first[name] == second[name]
        for name in ("loss", "mlm_accuracy", "sop_accuracy"):
            assert first[name] == pytest.approx(second[name], abs=1e-4)
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


@pytest.mark.slow
def test_a_worker_that_lost_its_folder_is_refused_by_all(tmp_path):
    ours, lost = tmp_path / "ours", tmp_path / "lost"
    finish(start(tmp_path, ours, "one_device"))
    shutil.rmtree(ours / "model")
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for index, folder in enumerate((ours, lost)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": workers}, "task": task})
        processes.append(start(tmp_path, folder, "multi_worker", {"TF_CONFIG": config}))
    for process in processes:
        _, errors = process.communicate(timeout=400)
        assert process.returncode == 1, errors[-3000:]
        message = "the workers differ in their step (worker 0: 6; worker 1: 0)"
        assert errors.count(message) == 1
        assert "Traceback" not in errors
    assert not (ours / "model").exists()


@pytest.mark.slow
def test_other_code_settings_or_sizes_are_named_by_all(tmp_path):
    # Python imports this when it starts.
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n"
        "found = metadata.version\n"
        "metadata.version = lambda n: '0.0' if n == 'albert_tf' else found(n)\n"
    )
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps({**CONFIG, "hidden_size": 16}))
    own = importlib.metadata.version("albert_tf")
    for path, changes, message in (
        (
            str(tmp_path),
            {"ema_decay": 0.5},
            f"version of albert_tf (worker 0: {own}; worker 1: 0.0), --ema_decay "
            "(worker 0: 0.0; worker 1: 0.5); give",
        ),
        (
            "",
            {"albert_config_file": sizes},
            "config hidden_size (worker 0: 12; worker 1: 16); give",
        ),
    ):
        output = tmp_path / "run"
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
        processes = []
        for index, theirs in enumerate([{}, changes]):
            task = {"type": "worker", "index": index}
            environment = {
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
                "PYTHONPATH": path * index,
            }
            arguments = tmp_path, output, "multi_worker", environment
            processes.append(start(*arguments, **theirs))
        for process in processes:
            _, errors = process.communicate(timeout=400)
            assert process.returncode == 1, errors[-3000:]
            (line,) = [x for x in errors.splitlines() if x.startswith("error: ")]
            assert f"the workers differ in their {message}" in line
            assert "Traceback" not in errors
        assert not output.exists()


def test_missing_cluster_is_a_usage_error(tmp_path):
    process = start(tmp_path, tmp_path / "run", "multi_worker", {"TF_CONFIG": "{}"})
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "TF_CONFIG" in errors and "Traceback" not in errors


def start_all(folder, output, count, **changes):
    """Starts the processes of a run on several machines."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": workers}, "task": task})
        environment = {"TF_CONFIG": config}
        processes.append(start(folder, output, "multi_worker", environment, **changes))
    return processes


def wait_for_line(folder, step, processes):
    deadline = time.time() + 300
    while time.time() < deadline:
        path = folder / "metrics.jsonl"
        if path.exists() and f'"step": {step},' in path.read_text():
            return
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    raise AssertionError(f"never reached step {step}")


# Seconds, on busy cores; TensorFlow itself notices within 40.
LIMIT = 150


def check_death(tmp_path, count, victim):
    """One worker is killed: the others end, and all of them together continue."""
    output = tmp_path / f"run-{count}-{victim}"
    changes = {"train_batch_size": 8, "num_train_steps": 80, "log_steps": 5}
    changes |= {"save_checkpoints_steps": 10, "eval_steps": 20}
    processes = start_all(tmp_path, output, count, **changes)
    wait_for_line(output, 25, processes)
    processes[victim].kill()
    for process in processes:
        _, errors = process.communicate(timeout=LIMIT)
        if process is processes[victim]:
            continue
        assert process.returncode == 1, errors[-3000:]
        (line,) = [x for x in errors.splitlines() if x.startswith("error: ")]
        assert "another worker of the run does not answer" in line
        assert "Traceback" not in errors
    finish(*start_all(tmp_path, output, count, **changes))
    whole = tmp_path / f"whole-{count}"
    if not whole.exists():
        finish(*start_all(tmp_path, whole, count, **changes))
    model = "model/model.safetensors"
    assert (whole / model).read_bytes() == (output / model).read_bytes()
    lines = [(f / "metrics.jsonl").read_text().splitlines() for f in (whole, output)]
    evaluations = [[x for x in part if '"eval"' in x] for part in lines]
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 4
    samples = [(f / "samples.jsonl").read_bytes() for f in (whole, output)]
    assert samples[0] == samples[1] and samples[0].count(b"\n") == 4
    names = [
        sorted(p.name for p in (f / "checkpoints").iterdir()) for f in (whole, output)
    ]
    assert names[0] == names[1]


@pytest.mark.broad
def test_a_worker_that_dies_ends_the_others(tmp_path):
    check_death(tmp_path, 2, victim=1)
    check_death(tmp_path, 2, victim=0)  # the one that writes


@pytest.mark.broad
def test_one_of_four_workers_dies(tmp_path):
    check_death(tmp_path, 4, victim=2)


@pytest.mark.broad
def test_a_worker_that_is_asked_to_end_ends_all(tmp_path):
    output = tmp_path / "run"
    changes = {"num_train_steps": 2000, "log_steps": 10, "save_checkpoints_steps": 500}
    processes = start_all(tmp_path, output, 2, **changes)
    wait_for_line(output, 20, processes)
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
from albert_tf.training.tensorflow import strategy
strategy.wait_for, strategy._CONNECT_SECONDS = lambda *_: None, 2
try:
    strategy.create_strategy("multi_worker")
except strategy.DataError as e:
    print(e)
"""


@pytest.mark.slow
def test_a_lone_worker_ends_in_time_and_when_asked_to(tmp_path, run_python):
    ports = free_ports(4)
    configs = []
    for index, own in enumerate((ports[:2], ports[2:])):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in own]}
        task = {"type": "worker", "index": index}
        configs.append({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})})
    late, asked = (
        start(tmp_path, tmp_path / str(i), "multi_worker", e, worker_timeout=5 - 5 * i)
        for i, e in enumerate(configs)
    )
    _, errors = late.communicate(timeout=300)
    (line,) = [x for x in errors.splitlines() if x.startswith("error: ")]
    assert f"no answer from worker 1 (127.0.0.1:{ports[1]}) after 5 s" in line
    assert late.returncode == 1 and "Traceback" not in errors
    waiting = None
    while waiting is None:
        with contextlib.suppress(OSError):
            waiting = socket.create_connection(("127.0.0.1", ports[3]))
        assert asked.poll() is None
    waiting.close()
    asked.send_signal(signal.SIGTERM)
    _, errors = asked.communicate(timeout=20)
    assert asked.returncode == 143, errors
    done = run_python("-c", LEAVES, timeout=300, **configs[1])
    assert "answer, but cannot be connected: Deadline" in done.stdout, done.stderr
