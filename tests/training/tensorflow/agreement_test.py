"""Workers notice when one of them is about to compute something else."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.training.tensorflow import strategy as agreement


def rows(*workers):
    return [dict(zip(["step", "weights"], values, strict=True)) for values in workers]


def test_equal_workers():
    assert agreement.find_difference(rows(["4", "ab"], ["4", "ab"])) is None


@pytest.mark.parametrize(
    "workers, expected",
    [
        ([["4", "ab"], ["0", "ab"]], "step (worker 0: 4; worker 1: 0)"),
        ([["4", "a"], ["4", "b"], ["4", "a"]], "weights (worker 0, 2: a; worker 1: b)"),
        (
            [["4", {"x": 1, "y": 2}], ["5", {"x": 1, "y": 3, "z": None}]],
            "step (worker 0: 4; worker 1: 5), weights y (worker 0: 2; worker 1: 3)",
        ),
    ],
)
def test_a_difference_names_the_workers(workers, expected):
    assert agreement.find_difference(rows(*workers)) == expected


def test_many_differences_are_counted():
    one, other = ({str(i): (i, worker) for i in range(9)} for worker in "ab")
    found = agreement.find_difference([one, other])
    assert found.count("worker 0") == 4 and found.endswith(", 5 more")


def test_the_digest_sees_names_shapes_and_the_last_bit():
    def digest(**values):
        return agreement.digest_of({k: tf.Variable(v) for k, v in values.items()})

    one = np.ones([2, 3], np.float32)
    other = one.copy()
    other[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    digests = [digest(a=one), digest(b=one), digest(a=one.T), digest(a=other)]
    assert len(set(digests)) == 4 and digest(a=one) == digests[0]


@pytest.fixture
def two_workers(monkeypatch):
    """Makes a strategy of two workers with two devices each.

    The other worker brings `others`, one after another.
    """
    strategy = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
    strategy._extended = types.SimpleNamespace(worker_devices=["a", "b"])

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

        monkeypatch.setattr(agreement, "_gather", gather)
        return strategy

    return begin


def test_values_of_unequal_length_are_shared(two_workers):
    values = [["", float("inf"), 0.1 + 0.2], {"ä": "x" * 9999}]
    strategy = two_workers(*values)
    assert agreement.share(strategy, None) == [None, values[0]]
    assert agreement.share(strategy, 7) == [7, values[1]]


def test_workers_with_and_without_averages_are_told_what_differs(two_workers):
    strategy = two_workers({"step": 0, "--ema_decay": 0.5, "averages": "ab"})
    with pytest.raises(DataError) as error:
        agreement.check_agreement(strategy, {"step": 0, "--ema_decay": 0.0})
    expected = "differ in their --ema_decay (worker 0: 0.0; worker 1: 0.5), averages ("
    assert expected in str(error.value)


def test_every_replica_brings_its_worker_s_row():
    tf_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    row = np.array([3.0, 2.0**24 - 1], np.float32)
    assert agreement._gather(tf_strategy, row).tolist() == [row.tolist()]
