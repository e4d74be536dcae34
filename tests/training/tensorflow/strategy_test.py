"""Every worker of a cluster except the chief has its own name."""

import types

import pytest

from albert_tf.training.tensorflow.strategy import helper_name


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
