"""Computes lower bounds of the time of a step: operations, memory and network."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from albert_tf.planning.hlo import Collective
from albert_tf.planning.topologies import GpuMachine, Topology

# Kinds of kernels with operations that take more time than a pass over their data.
DENSE = ("products", "attention")

_OF_TPUS = (
    "Operations are matrix products, at the device's peak in bfloat16; this includes "
    "--precision=float32, which a TPU computes in one bfloat16 pass by default.",
    "Memory traffic is the data that the compiled program moves to and from HBM, at "
    "its peak speed; data that stays inside the chip costs nothing.",
    "The network is a ring over all chips that uses all links of a chip at once, at "
    "half of their speed where the links of a slice do not form rings (v4, v5p and "
    "TPU7x below 64 chips, v5e and v6e below 256).",
    "Operations and memory traffic overlap; the network overlaps with neither, "
    "because gradients are summed only when all are known. A step takes at least this "
    "long.",
)
_OF_GPUS = (
    "Operations are matrix products, at the GPU's peak in bfloat16; in float32, they "
    "take at least twice as long as assumed.",
    "Memory traffic is all data that the kernels of the compiled program read and "
    "write, at the peak speed of the GPU's memory, of which there are the three "
    "quarters that JAX takes by default.",
    "Kernels of a GPU run one after another: operations overlap only with the traffic "
    "of products and attention, and all other kernels are passes over memory. The "
    "network, a ring over all GPUs at the speed of a GPU's links, overlaps with "
    "neither. A step takes at least this long.",
)
_OF_BOTH = (
    "Reading batches, evaluations, checkpoints and compilation take no time. Every "
    "row holds one example; packing adds a mask per row.",
)


def assumptions(machines: Iterable[Topology | GpuMachine]) -> list[str]:
    """Returns the assumptions of the times of these machines."""
    are_gpus = [isinstance(machine, GpuMachine) for machine in machines]
    of_tpus = () if all(are_gpus) else _OF_TPUS
    return [*of_tpus, *(_OF_GPUS if any(are_gpus) else ()), *_OF_BOTH]


class Times(NamedTuple):
    """Seconds of a step on every device, each as if nothing else took any.

    They are for operations, for data moved from and to the device's memory, and for
    data sent to other devices. On a GPU, whose kernels run one after another, `memory`
    belongs to products and attention, and `passes` to all other kernels.
    """

    compute: float
    memory: float
    network: float
    passes: float = 0.0

    @property
    def step(self) -> float:
        """Lower bound of the seconds of a step."""
        return max(self.compute, self.memory) + self.passes + self.network

    @property
    def bound(self) -> str:
        """The name of the longest time."""
        return max(self._fields, key=lambda name: getattr(self, name))


def collectives_of(found: Mapping[str, Any]) -> list[Collective]:
    """Returns the exchanges in the result of `program.compile_step`."""
    return [Collective(*one) for one in found["collectives"]]


def times(found: Mapping[str, Any], topology: Topology | GpuMachine) -> Times:
    """Returns the seconds of a step by each limit; see `program.compile_step`."""
    chip = topology.chip
    sent = sum(one.sent for one in collectives_of(found))
    moved, passes = found["memory_bytes"], 0
    if isinstance(topology, GpuMachine):
        passes = sum(n for kind, (_, n) in found["kinds"].items() if kind not in DENSE)
        moved -= passes
    return Times(
        found["flops"] / (chip.teraflops * 1e12),
        moved / (chip.memory_rate * 1e9),
        sent / (topology.network_rate * 1e9),
        passes / (chip.memory_rate * 1e9),
    )
