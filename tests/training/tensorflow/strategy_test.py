"""The strategy of a run: its devices, and what its workers exchange."""

import json
import socket
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.training.tensorflow import strategy
from albert_tf.training.tensorflow.strategy import create_strategy, helper_name
from tests.training.cluster import free_ports


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
    spec = types.SimpleNamespace(as_dict=lambda: dict.fromkeys(jobs))
    resolver = types.SimpleNamespace(
        task_type=task, task_id=index, cluster_spec=lambda: spec
    )
    found = types.SimpleNamespace(cluster_resolver=resolver)
    assert helper_name(found) == expected
    assert helper_name(types.SimpleNamespace(cluster_resolver=None)) == ""


@pytest.mark.parametrize("name", ["local", "", "no-such-tpu", "grpc://127.0.0.1:x", 0])
def test_without_a_tpu_one_short_line_says_so(name, monkeypatch):
    # The metadata server of the cloud is asked nowhere else than here.
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{free_ports(1)[0]}")
    # TensorFlow itself tries an address that refuses for longer than any test may take.
    name = name if isinstance(name, str) else f"grpc://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(DataError, match="--distribution=tpu: no TPU") as error:
        create_strategy("tpu", tpu_name=name)
    assert f"--tpu_name={name} (" in str(error.value)
    assert len(str(error.value)) < 150 and "\n" not in str(error.value)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_pod_is_refused_before_tensorflow_connects(allowed, monkeypatch):
    hosts = types.SimpleNamespace(as_dict=lambda: {"worker": ["a:8470", "b:8470"]})
    pod = types.SimpleNamespace(cluster_spec=lambda: hosts)
    monkeypatch.setattr(strategy, "_find_tpu", lambda name: pod)
    tried = mock.Mock(side_effect=RuntimeError("connected"))
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", tried)
    error, message = UsageError, "has 2 hosts, .* --backend=jax trains on all hosts"
    if allowed:
        error, message = DataError, "no TPU answers at --tpu_name=pod"
    with pytest.raises(error, match=message):
        create_strategy("tpu", tpu_name="pod", allow_tpu_pod=allowed)
    assert tried.called == allowed


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


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"task": None}, "requires the environment variable TF_CONFIG"),
        ({"cluster": []}, "requires the environment variable TF_CONFIG"),
        (
            {"task": {"index": 2}},
            "from 0 to 1, for the 2 of cluster.worker, received 2",
        ),
        ({"task": {"index": "0"}}, "task.index must be from 0 to 1, .* received '0'"),
        (
            {"task": {"type": "ps", "index": 0}},
            "task.type must be one of worker, the jobs of cluster, received 'ps'",
        ),
        (
            {"cluster": {"worker": ["a:1", "b"]}},
            "cluster.worker must hold host:port, received 'b'",
        ),
    ],
)
def test_a_wrong_tf_config_is_refused_at_once(changes, message, monkeypatch):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 0}, **changes}
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


@pytest.fixture
def two_workers(monkeypatch):
    """Makes a strategy of two workers with two devices each.

    The other worker brings `others`, one after another.
    """
    several = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
    several._extended = types.SimpleNamespace(worker_devices=["a", "b"])

    def begin(*others):
        waiting = [json.dumps(value).encode() for value in others]
        lengths = []

        def gather(_, row):
            if len(row) == 1:
                lengths.append(int(row[0]))
                other = np.array([len(waiting[0])], np.float32)
            else:
                text = waiting.pop(0)
                assert len(row) >= max(len(text), lengths.pop())
                other = np.zeros_like(row)
                other[: len(text)] = np.frombuffer(text, np.uint8)
            return np.stack([row, row, other, other])

        monkeypatch.setattr(strategy, "_gather", gather)
        return several

    return begin


def test_values_of_unequal_length_are_shared(two_workers):
    values = [["", float("inf"), 0.1 + 0.2], {"ä": "x" * 9999}]
    several = two_workers(*values)
    assert strategy.share(several, None) == [None, values[0]]
    assert strategy.share(several, 7) == [7, values[1]]


def test_every_replica_brings_its_worker_s_row():
    tf_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    row = np.array([3.0, 2.0**24 - 1], np.float32)
    assert strategy._gather(tf_strategy, row).tolist() == [row.tolist()]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_rows_of_all_workers_are_joined_in_order(two_workers, monkeypatch, kind):
    several = two_workers()
    # Two replicas of each worker bring the same row.
    gather = lambda _, row: np.stack([row, row, row + 1, row + 1])  # noqa: E731
    monkeypatch.setattr(strategy, "_gather", gather)
    joined = strategy.join_rows(several, np.arange(6, dtype=kind).reshape(2, 3))
    assert joined.dtype == kind
    assert joined.tolist() == [[0, 1, 2], [3, 4, 5], [1, 2, 3], [4, 5, 6]]
