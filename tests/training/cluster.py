"""Runs of several workers, here processes of one machine."""

import json
import os
import socket
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from tests.training import runs
from tests.training.runs import lines_of

EXACT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def clusters(count, ports=None):
    """Returns TF_CONFIG of each worker."""
    workers = [f"127.0.0.1:{port}" for port in ports or free_ports(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": workers}, "task": t}) for t in tasks]


def begin(verb, values, cluster=None):
    """Starts a command, as a worker if there is a cluster."""
    backend = values.get("backend", "tensorflow")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if cluster is not None:
        values = {**values, "distribution": "multi_worker"}
        environment["TF_CONFIG"] = cluster
    return subprocess.Popen(
        runs.command_line(verb, values),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def begin_all(verb, values, count):
    """Starts the processes of a run on several machines."""
    return [begin(verb, values, cluster) for cluster in clusters(count)]


def finish(*processes):
    """Waits for all, and returns what each one printed."""
    printed = []
    for process in processes:
        out, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors[-3000:]
        printed.append(out)
    return printed


def refused(*processes, timeout=400):
    """Waits for all, and returns the one line of each about its error."""
    lines = []
    for process in processes:
        _, errors = process.communicate(timeout=timeout)
        assert process.returncode == 1, errors[-3000:]
        assert "Traceback" not in errors
        lines += [x for x in errors.splitlines() if x.startswith("error: ")]
    assert len(lines) == len(processes)
    return lines


def pretraining(folder, name="run", **changes):
    values = {"eval_file": str(runs.RECORDS), "eval_batch_size": 24, "log_steps": 2}
    values |= {"train_batch_size": 8, "eval_steps": 3, "save_checkpoints_steps": 4}
    values |= {"num_warmup_steps": 2, "max_eval_steps": 100, "learning_rate": 1e-4}
    return runs.pretraining(
        folder, EXACT, **{**values, "output_dir": folder / name, **changes}
    )


def assert_close(one, other, weights="model.safetensors"):
    """Compares weights and measurements of two finished runs, up to rounding."""
    a, b = (safetensors.numpy.load_file(folder / weights) for folder in (one, other))
    for name, value in a.items():
        # Its gradient is zero except for rounding, which the optimizer amplifies.
        if not name.endswith("attention_0/key/bias"):
            np.testing.assert_allclose(b[name], value, atol=5e-5, err_msg=name)
    for first, second in zip(lines_of(one), lines_of(other), strict=True):
        assert (first["split"], first["step"]) == (second["split"], second["step"])
        names = {"loss", "accuracy", "mlm_accuracy", "sop_accuracy"}
        for name in names & first.keys():
            assert first[name] == pytest.approx(second[name], abs=1e-4)
        rates = (line.get("learning_rate", 0) for line in (first, second))
        assert next(rates) == pytest.approx(next(rates))
