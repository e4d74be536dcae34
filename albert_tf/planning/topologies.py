"""The machines to plan for: slices of TPUs and machines with NVIDIA GPUs, by name.

The numbers come from Google Cloud's documentation of TPU v4, v5e, v5p, v6e and TPU7x
(docs.cloud.google.com/tpu/docs), except the links of a v4 (Table 4 of arXiv:2304.01433)
and the memory that a program gets (stated by libtpu 0.0.51). Those of GPUs come from
NVIDIA's data sheets and CUDA's table of compute capabilities; the memory that a program
gets there is three quarters of the whole, which is JAX's default.
"""

import math
import re
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


class Gpu(NamedTuple):
    """One kind of NVIDIA GPU, and what XLA needs to know to compile for it.

    Args:
        kind, teraflops, memory_gib, memory_rate, network_rate: As for `Chip`.
        capability: str. CUDA's compute capability.
        size: int. Bytes of its memory.
        target: dict. Other fields of XLA's `GpuDeviceInfoProto`.
    """

    kind: str
    teraflops: float
    memory_gib: float
    memory_rate: float
    network_rate: float
    capability: str
    size: int
    target: dict[str, float]


def _gpu(kind, teraflops, size, rate, network, capability, *values) -> Gpu:
    memory = round(0.75 * size / 2**30, 2)
    target = dict(zip(_TARGET, values, strict=True))
    return Gpu(kind, teraflops, memory, rate, network, capability, size, target)


_TARGET = ("core_count", "fpus_per_core", "threads_per_core_limit", "l2_cache_size")
_TARGET += ("shared_memory_per_core", "shared_memory_per_block_optin", "clock_rate_ghz")
_SAME = {"threads_per_block_limit": 1024, "threads_per_warp": 32}
_SAME |= {"shared_memory_per_block": 49152, "registers_per_core_limit": 65536}
_SAME |= {"registers_per_block_limit": 65536, "block_dim_limit_x": 2**31 - 1}
_SAME |= {"block_dim_limit_y": 65535, "block_dim_limit_z": 65535}
_SAME |= {"thread_dim_limit_x": 1024, "thread_dim_limit_y": 1024}
_SAME |= {"thread_dim_limit_z": 64}
_MIB = 2**20
GPUS = (
    _gpu(
        *("h100", 989.4, 84942979072, 3352, 450, "9.0"),
        *(132, 128, 2048, 50 * _MIB, 233472, 232448, 1.98),
    ),
    _gpu(
        *("a100", 312, 85100068864, 2039, 300, "8.0"),
        *(108, 64, 2048, 40 * _MIB, 167936, 166912, 1.41),
    ),
    _gpu(
        *("l4", 121, 23034 * _MIB, 300, 32, "8.9"),
        *(58, 128, 1536, 48 * _MIB, 102400, 101376, 2.04),
    ),
    _gpu(
        *("t4", 65, 15360 * _MIB, 320, 16, "7.5"),
        *(40, 64, 1024, 4 * _MIB, 65536, 65536, 1.59),
    ),
)


class GpuMachine(NamedTuple):
    """A machine with a number of GPUs of one kind; see `Topology`."""

    chip: Gpu
    num_chips: int

    @property
    def num_devices(self) -> int:
        """Number of devices, among which a program divides its rows."""
        return self.num_chips

    @property
    def name(self) -> str:
        """Kind and number, such as `h100x8`."""
        return f"{self.chip.kind}x{self.num_chips}"

    shape = name

    @property
    def network_rate(self) -> float:
        """The rate at which each GPU sends to the others, in GB/s."""
        return self.chip.network_rate

    @property
    def compiler_options(self) -> dict[str, str]:
        """Returns the arguments of `jax.experimental.topologies.get_topology_desc`."""
        gpu = self.chip
        fields = {**_SAME, **gpu.target, "device_memory_size": gpu.size}
        fields["memory_bandwidth"] = int(gpu.memory_rate * 1e9)
        major, minor = gpu.capability.split(".")
        info = " ".join(f"{name}: {value}" for name, value in fields.items())
        config = (
            f"gpu_device_info {{ {info} cuda_compute_capability {{ major: {major} "
            f'minor: {minor} }} dnn_version: "9.10.0" runtime_version: "12.9.0" '
            'driver_version: "13.0.0" compile_time_toolkit_version: "12.9.0" } '
            'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } '
            f'device_description_str: "{gpu.kind}"'
        )
        layout = f"1x1x{self.num_chips}"
        return {
            "topology_name": gpu.kind,
            "topology": layout,
            "target_config": config,
        }


TOPOLOGIES = {
    one.name: one
    for one in (
        *(Topology(chip, shape) for chip in CHIPS for shape in chip.shapes),
        *(GpuMachine(gpu, number) for gpu in GPUS for number in (1, 2, 4, 8)),
    )
}


def find_topology(name: str, flag: str = "topology") -> Topology | GpuMachine:
    """Returns the machine of this name, or raises `UsageError` if there is none.

    `h100x8` is a machine with eight GPUs; `h100` has one. For slices of TPUs, as in
    Google Cloud, the number in a name counts cores for v4, v5p and TPU7x, whose chips
    have two, and chips for v5e and v6e. `v5litepod-16` is `v5e-16`.
    """
    kind, _, number = name.strip().partition("-")
    kind = _OTHER_NAMES.get(kind, kind)
    names = [f"{kind}-{number}"] if number else [kind, f"{kind}x1"]
    topology = next((TOPOLOGIES[n] for n in names if n in TOPOLOGIES), None)
    kind = re.sub(r"x\d*$", "", kind)
    of_kind = [n for n, one in TOPOLOGIES.items() if one.chip.kind == kind]
    names = ", ".join(of_kind or TOPOLOGIES)
    require(topology is not None, f"--{flag} must be one of {names}", name)
    return topology
