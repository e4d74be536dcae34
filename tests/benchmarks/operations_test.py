"""Where the time of a call goes."""

import pytest
import tensorflow as tf

from benchmarks.operations import profile_operations


def test_names_and_counts_the_operations():
    square = tf.random.stateless_normal((400, 400), [1, 2])

    @tf.function
    def call():
        return tf.reduce_sum(tf.linalg.matmul(tf.linalg.matmul(square, square), square))

    call()
    found = profile_operations(call)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert found == sorted(found, key=lambda one: -one.share)
    # oneDNN's kernels have names of their own.
    products = [one for one in found if one.name.endswith("MatMul")]
    assert sum(one.count for one in products) == 2
    assert [one.count for one in found if one.name == "Sum"] == [1]
    assert len(profile_operations(call, top=1)) == 1
