"""Every worker of a cluster except the chief has its own name."""

import types

import pytest

from albert_tf.errors import UsageError
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
