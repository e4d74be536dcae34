"""The TPUs that can be rented, by the names of their slices.

The numbers come from Google Cloud's documentation of TPU v4, v5e, v5p, v6e and TPU7x
(docs.cloud.google.com/tpu/docs), except the links of a v4 (Table 4 of arXiv:2304.01433)
and the memory that a program gets (stated by libtpu 0.0.51).
"""

import math
from typing import NamedTuple

from albert_tf.errors import require


class Chip(NamedTuple):
    """One kind of chip, and the slices that it is rented in.

    Args:
        kind: str. Its name, as in `v5e-16`.
        teraflops: float. Peak of a device in bfloat16, in TFLOP/s.
        memory_gib: float. Memory (HBM) that a program gets on a device, in GiB.
        memory_rate: float. Speed of this memory, in GB/s.
        network_rate: float. Rate at which a chip sends over all its links at once, in
            GB/s.
        cores: int. Cores per chip, as counted by the number in the name of a slice.
        torus: int. Number of chips from which the links of a slice close to rings.
        shapes: tuple of str. Slices as libtpu names them.
        devices: int. Devices that a program sees per chip, each with its own memory.
    """

    kind: str
    teraflops: float
    memory_gib: float
    memory_rate: float
    network_rate: float
    cores: int
    torus: int
    shapes: tuple[str, ...]
    devices: int = 1


_FLAT = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_DEEP = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16"
CHIPS = (
    Chip("v4", 275, 30.75, 1200, 300, 2, 64, tuple(_DEEP.split())),
    Chip("v5e", 197, 15.75, 819, 200, 1, 256, tuple(_FLAT.split())),
    Chip("v5p", 459, 95.73, 2765, 600, 2, 64, (*_DEEP.split(), "16x16x16")),
    Chip("v6e", 918, 31.24, 1638, 400, 1, 256, tuple(_FLAT.split())),
    Chip("tpu7x", 1153.5, 94.74, 3690, 600, 2, 64, tuple(_DEEP.split()), 2),
)
# gcloud's name for slices of a v5e.
_OTHER_NAMES = {"v5litepod": "v5e"}


class Topology(NamedTuple):
    """A slice of a TPU; `shape` is the arrangement of its chips, such as `4x4`."""

    chip: Chip
    shape: str

    @property
    def num_chips(self) -> int:
        """Number of chips."""
        return math.prod(map(int, self.shape.split("x")))

    @property
    def num_devices(self) -> int:
        """Number of devices, among which a program divides its rows."""
        return self.num_chips * self.chip.devices

    @property
    def name(self) -> str:
        """The name under which it is rented."""
        return f"{self.chip.kind}-{self.num_chips * self.chip.cores}"

    @property
    def network_rate(self) -> float:
        """The rate at which each chip sends in a ring over all chips, in GB/s.

        Where links do not close to rings, the way back takes half of it. The two
        devices of a chip are neighbours in the ring, with a faster link between them.
        """
        return self.chip.network_rate / (1 if self.num_chips >= self.chip.torus else 2)

    @property
    def compiler_options(self) -> dict[str, str]:
        """Returns the arguments of `jax.experimental.topologies.get_topology_desc`."""
        # The two cores of a v4 or v5p form one device, as on the machine itself.
        config = "megacore" if self.chip.cores > self.chip.devices else "default"
        name = f"{self.chip.kind}:{self.shape}"
        return {"topology_name": name, "chip_config_name": config}


TOPOLOGIES = {
    one.name: one
    for one in (Topology(chip, shape) for chip in CHIPS for shape in chip.shapes)
}


def find_topology(name: str) -> Topology:
    """Returns the slice of this name, or raises `UsageError` if there is none.

    As in Google Cloud, the number in a name counts cores for v4, v5p and TPU7x, whose
    chips have two, and chips for v5e and v6e. `v5litepod-16` is `v5e-16`.
    """
    kind, _, number = name.strip().partition("-")
    kind = _OTHER_NAMES.get(kind, kind)
    topology = TOPOLOGIES.get(f"{kind}-{number}")
    of_kind = [n for n, one in TOPOLOGIES.items() if one.chip.kind == kind]
    names = ", ".join(of_kind or TOPOLOGIES)
    require(topology is not None, f"--topology must be one of {names}", name)
    return topology
