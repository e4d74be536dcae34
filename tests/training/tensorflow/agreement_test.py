"""Workers notice when one of them is about to compute something else."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.training.tensorflow import agreement

TITLES = ["step", "weights"]


def rows(*workers):
    encode = agreement._encode
    return np.stack([np.stack([encode(v) for v in values]) for values in workers])


def test_equal_workers():
    assert agreement.find_difference(TITLES, rows(["4", "ab"], ["4", "ab"])) is None


@pytest.mark.parametrize(
    "workers, expected",
    [
        ([["4", "ab"], ["0", "cd"]], "their step (worker 0 against worker 1)"),
        ([["4", "a"], ["4", "b"], ["4", "a"]], "their weights (worker 0, 2 against"),
    ],
)
def test_a_difference_names_the_workers(workers, expected):
    assert expected in agreement.find_difference(TITLES, rows(*workers))


def test_a_sum_with_zeros_is_exact():
    row = rows(["4", "ab"])
    assert (row == row.astype(np.int64)).all() and row.max() < 2**24
    assert len({*row.ravel().tolist()}) == row.size


def test_the_digest_sees_names_shapes_and_the_last_bit():
    def digest(**values):
        return agreement.digest_of({k: tf.Variable(v) for k, v in values.items()})

    one = np.ones([2, 3], np.float32)
    other = one.copy()
    other[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    digests = [digest(a=one), digest(b=one), digest(a=one.T), digest(a=other)]
    assert len(set(digests)) == 4 and digest(a=one) == digests[0]


def test_every_replica_brings_its_worker_s_row():
    tf_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    row = np.array([3.0, 2.0**24 - 1], np.float32)
    assert agreement._gather(tf_strategy, row).tolist() == [row.tolist()]
