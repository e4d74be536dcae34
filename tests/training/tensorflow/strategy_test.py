"""Every worker of a cluster except the chief has its own name."""

import json
import types

import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.training.tensorflow import strategy
from albert_tf.training.tensorflow.strategy import create_strategy, helper_name


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


@pytest.mark.parametrize("name", ["local", ""])
def test_without_a_tpu_one_short_line_says_so(name):
    with pytest.raises(UsageError, match="--distribution=tpu: no TPU") as error:
        create_strategy("tpu", tpu_name=name)
    assert len(str(error.value)) < 130 and "\n" not in str(error.value)


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
