"""Seconds of a step from what a chip does in it."""

import pytest

from albert_tf.planning.roofline import times
from albert_tf.planning.topologies import find_topology

FOUND = {
    "flops": 197e12 * 2,
    "memory_bytes": 819e9,
    "collectives": [["all-reduce", 2, 10**9, 16], ["collective-permute", 1, 10**9, 16]],
}


def test_each_is_work_divided_by_speed():
    found = times(FOUND, find_topology("v5e-16"))
    assert found.compute == pytest.approx(2)
    assert found.memory == pytest.approx(1)
    # Twice 15/16 of a GB, two times, and one more, at half of 200 GB/s.
    assert found.network == pytest.approx((2 * 2 * 15 / 16 + 1) / 100)


def test_only_the_network_adds_to_the_slower_of_the_others():
    found = times(FOUND, find_topology("v5e-16"))
    assert found.step == found.compute + found.network and found.bound == "compute"
    slower = times(FOUND | {"memory_bytes": 819e9 * 3}, find_topology("v5e-16"))
    assert slower.step == slower.memory + slower.network and slower.bound == "memory"
    lonely = times({**FOUND, "flops": 0, "memory_bytes": 0}, find_topology("v5e-16"))
    assert lonely.step == found.network and lonely.bound == "network"


def test_kernels_of_a_gpu_run_one_after_another():
    kinds = {"products": (3, 10**9), "attention": (1, 10**9), "head": (2, 10**9)}
    found = {"flops": 0, "memory_bytes": 3 * 10**9, "kinds": kinds, "collectives": []}
    seconds = times(found, find_topology("h100"))
    rate = 3352e9
    assert seconds.memory == pytest.approx(2e9 / rate)
    assert seconds.passes == pytest.approx(1e9 / rate)
    assert seconds.step == seconds.memory + seconds.passes
