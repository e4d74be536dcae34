"""Every worker of a cluster except the chief has its own name."""

import json
import socket
import types

import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.training.tensorflow import strategy
from albert_tf.training.tensorflow.strategy import create_strategy, helper_name
from tests.imports import ROOT

GOLDEN = ROOT / "tests/golden"


def name(task, index, *jobs):
    resolver = types.SimpleNamespace(
        task_type=task,
        task_id=index,
        cluster_spec=lambda: types.SimpleNamespace(as_dict=lambda: dict.fromkeys(jobs)),
    )
    return helper_name(types.SimpleNamespace(cluster_resolver=resolver))


@pytest.mark.parametrize(
    "task, index, jobs, expected",
    [
        ("worker", 0, ["worker"], ""),
        ("worker", 1, ["worker"], "worker-1"),
        ("chief", 0, ["chief", "worker"], ""),
        ("worker", 0, ["chief", "worker"], "worker-0"),
        (None, None, [], ""),
    ],
)
def test_helper_names(task, index, jobs, expected):
    assert name(task, index, *jobs) == expected


def test_a_single_process_is_the_chief():
    assert helper_name(types.SimpleNamespace(cluster_resolver=None)) == ""


def free_port():
    """A port of this machine where nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def no_cloud(monkeypatch):
    """The metadata server of the cloud is asked nowhere else than here."""
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize("name", ["local", "", "no-such-tpu", "grpc://127.0.0.1:x"])
def test_without_a_tpu_one_short_line_says_so(name, no_cloud):
    with pytest.raises(DataError, match="--distribution=tpu: no TPU") as error:
        create_strategy("tpu", tpu_name=name)
    assert f"--tpu_name={name} (" in str(error.value)
    assert len(str(error.value)) < 150 and "\n" not in str(error.value)


def test_an_address_that_refuses_is_not_waited_for():
    # TensorFlow itself tries again for longer than any test may take.
    name = f"grpc://127.0.0.1:{free_port()}"
    with pytest.raises(DataError, match=f"no TPU answers at --tpu_name={name}"):
        create_strategy("tpu", tpu_name=name)


def test_an_address_that_is_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(strategy, "_TPU_SECONDS", 0.1)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        # They fill the queue, so that the next one gets no answer at all.
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(DataError, match="no TPU answers") as error:
            create_strategy("tpu", tpu_name=f"grpc://127.0.0.1:{address[1]}")
        for one in waiting:
            one.close()
    assert isinstance(error.value.__cause__, TimeoutError)
    assert socket.getdefaulttimeout() is None


@pytest.mark.slow
def test_the_command_ends_with_one_line(tmp_path, run_python):
    done = run_python(
        ROOT / "tools/pretrain.py",
        "--distribution=tpu",
        f"--tpu_name=grpc://127.0.0.1:{free_port()}",
        f"--input_file={GOLDEN / 'tf1_data/seq128_pred20.tfrecord'}",
        f"--spm_model_file={GOLDEN / 'tokenization/spiece.model'}",
        "--preset=albert_base_v2",
        f"--output_dir={tmp_path / 'run'}",
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and "no TPU answers" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_tpu_of_several_hosts_is_warned_of(caplog):
    strategy.warn_of_hosts(1)
    assert not caplog.messages
    strategy.warn_of_hosts(4)
    assert "the TPU has 4 hosts" in caplog.text


WORKERS = ["10.0.0.1:1", "10.0.0.2:1"]


@pytest.mark.parametrize(
    "config, message",
    [
        ({}, "requires the environment variable TF_CONFIG"),
        ({"cluster": {"worker": WORKERS}}, "requires the environment variable"),
        ({"cluster": [], "task": {"index": 0}}, "requires the environment variable"),
        (
            {"cluster": {"worker": WORKERS}, "task": {"index": 2}},
            "task.index must be from 0 to 1, for the 2 of cluster.worker, received 2",
        ),
        (
            {"cluster": {"worker": WORKERS}, "task": {"index": "0"}},
            "task.index must be from 0 to 1, for the 2 of cluster.worker, received '0'",
        ),
        (
            {"cluster": {"worker": WORKERS}, "task": {"type": "ps", "index": 0}},
            "task.type must be one of worker, the jobs of cluster, received 'ps'",
        ),
        (
            {"cluster": {"worker": ["a:1", "b"]}, "task": {"index": 0}},
            "cluster.worker must hold host:port, received 'b'",
        ),
    ],
)
def test_a_wrong_tf_config_is_refused_at_once(config, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UsageError, match=message):
        create_strategy("multi_worker")


def test_only_lost_workers_are_explained():
    several = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    other = tf.errors.ResourceExhaustedError(None, None, "OOM")
    message = "another worker of the run does not answer"
    with pytest.raises(DataError, match=message), strategy.worker_errors(several):
        raise lost
    for one, error in ((several, other), (tf.distribute.get_strategy(), lost)):
        with pytest.raises(type(error)), strategy.worker_errors(one):
            raise error
