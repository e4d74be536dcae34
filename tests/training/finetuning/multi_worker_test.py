"""Two machines, here two processes, fine-tune to the weights of one."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from tests.training.finetuning.devices_test import start  # noqa: F401  (a fixture)
from tests.training.finetuning.resume_test import settings_of
from tests.training.pretraining.multi_worker_test import free_ports

ROOT = pathlib.Path(__file__).parents[3]
WEIGHTS = "model.safetensors"


def begin(settings, output, cluster=None):
    flags = {
        **settings,
        "output_dir": output,
        "distribution": "multi_worker" if cluster else "one_device",
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    environment = {"TF_CONFIG": json.dumps(cluster)} if cluster else {}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools/finetune.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def clusters():
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    return [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        for index in range(2)
    ]


def finish(processes):
    """Waits for all, and returns what each one printed."""
    printed = []
    for process in list(processes):  # all of them start before the first is waited for
        out, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors[-3000:]
        printed.append(out)
    return printed


def files_in(folder):
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.broad
def test_two_workers_equal_one_device_and_one_of_them_writes(start, tmp_path):  # noqa: F811
    settings = {
        **settings_of("texts", tmp_path, start),
        "dropout": 0.0,
        # The best weights are not the last: they are read back at the end.
        "eval_steps": 2,
        "early_stopping_patience": 0,
    }
    one, two = tmp_path / "one", tmp_path / "two"
    finish([begin(settings, one)])
    metrics = json.loads((one / "metrics.json").read_text())
    assert metrics["step"] < metrics["num_train_steps"]
    chief, helper = finish(begin(settings, two, cluster) for cluster in clusters())
    assert json.loads(chief)["step"] == metrics["step"]
    assert json.loads(helper) == {}
    same_run(one, two)
    # With folders of their own it shows who writes what.
    three, nothing = tmp_path / "three", tmp_path / "nothing"
    folders = (three, nothing)
    finish(map(begin, [settings] * 2, folders, clusters()))
    same_run(one, three)
    assert not nothing.exists() or not files_in(nothing)


def same_run(one, other):
    """Compares the finished folders of two runs."""
    a, b = (safetensors.numpy.load_file(folder / WEIGHTS) for folder in (one, other))
    for name, value in a.items():
        np.testing.assert_allclose(b[name], value, atol=5e-5, err_msg=name)
    lines = [
        list(map(json.loads, (folder / "metrics.jsonl").open()))
        for folder in (one, other)
    ]
    for first, second in zip(*lines, strict=True):
        assert (first["split"], first["step"]) == (second["split"], second["step"])
        for name in {"loss", "accuracy"} & first.keys():
            assert first[name] == pytest.approx(second[name], abs=1e-4)
    without_events = [
        {name for name in files_in(folder) if "tfevents" not in name}
        for folder in (one, other)
    ]
    assert without_events[0] == without_events[1]
