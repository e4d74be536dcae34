"""Names of slices, and what they stand for."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.planning.topologies import CHIPS, TOPOLOGIES, find_topology


@pytest.mark.parametrize(
    ("name", "chips", "compiled_as"),
    [
        ("v5e-16", 16, "v5e:4x4"),
        ("v5litepod-16", 16, "v5e:4x4"),
        (" v6e-8", 8, "v6e:2x4"),
        ("v4-32", 16, "v4:2x2x4"),
        ("v5p-16", 8, "v5p:2x2x2"),
        ("v5p-8192", 4096, "v5p:16x16x16"),
        ("tpu7x-16", 8, "tpu7x:2x2x2"),
    ],
)
def test_numbers_count_chips_or_their_two_cores(name, chips, compiled_as):
    topology = find_topology(name)
    assert topology.num_chips == chips
    assert topology.compiler_options["topology_name"] == compiled_as
    wide = topology.compiler_options["chip_config_name"] == "megacore"
    assert wide == (name[:3] in ("v4-", "v5p"))
    # Only the two cores of a TPU7x are devices by themselves.
    assert topology.num_devices == chips * (2 if name.startswith("tpu7x") else 1)


def test_every_kind_has_slices_of_one_host_and_of_a_pod():
    for chip in CHIPS:
        sizes = [one.num_chips for one in TOPOLOGIES.values() if one.chip is chip]
        assert sizes == sorted(set(sizes))
        assert 4 in sizes and max(sizes) >= 256


def test_open_ends_halve_the_network():
    assert find_topology("v5e-256").network_rate == 200
    assert find_topology("v5e-128").network_rate == 100
    assert find_topology("v4-128").network_rate == 300
    assert find_topology("v4-64").network_rate == 150


@pytest.mark.parametrize("name", ["v5e-17", "v5e", "v5e-", "v5litepod-3"])
def test_an_unknown_size_lists_those_of_its_kind(name):
    with pytest.raises(UsageError) as error:
        find_topology(name)
    assert "v5e-16, " in str(error.value) and "v4-8" not in str(error.value)
    assert repr(name) in str(error.value)


def test_machines_with_gpus():
    one, eight = find_topology("h100"), find_topology("h100x8")
    assert (one.num_devices, eight.num_devices) == (1, 8)
    options = eight.compiler_options
    assert options["topology"] == "1x1x8" and "core_count: 132" in str(options)
    for name in ("h100x3", "h100-8", "h100x"):
        with pytest.raises(UsageError, match="of h100x1, h100x2, h100x4, h100x8, rec"):
            find_topology(name)


def test_an_unknown_kind_lists_all():
    with pytest.raises(
        UsageError, match=r"v4-8, .*v5e-1, .*v5p-8, .*v6e-256, .*t4x8"
    ) as error:
        find_topology("v9-8")
    assert "\n" not in str(error.value)
