"""Reads the work of a device in one step from the text of a compiled program (HLO).

XLA's own analysis counts the body of a loop once; here it counts once per iteration.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf.errors import require

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
# These move no data, or their data is counted where the transfer starts.
_FREE = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota"),
    *("while", "call", "conditional", "after-all", "partition-id", "opt-barrier"),
    "async-start",  # its callee is counted
)
# On a GPU, calls of libraries and of XLA's own kernels. On a TPU, Pallas' kernels;
# other custom calls are names for memory that other instructions use.
_LIBRARY = re.compile(r'custom_call_target="(__cu|__gpu|tpu_custom_call)')
# Kinds of work by the first pattern that occurs in the name of an operation, which
# contains the layers around it; in a gradient, also `jvp`.
_KINDS = {
    "gather": re.compile(r"/embeddings/|gather|scatter|_take|sort"),
    "activation": re.compile(r"/ffn_\d+/"),
    "attention passes": re.compile(r"/attention_\d+/"),
    "normalization": re.compile(r"/encoder/"),
    "head": re.compile(r"jvp\("),
    "optimizer": re.compile("."),
}
# These read a part of their first operand, as large as their result.
_SLICES = ("dynamic-slice", "slice", "gather")
# These change a part of their first operand in place; values: the operand with it.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*)"
)
_CALLS = re.compile(r"\b(?:calls|to_apply|called_computations)=\{?%?([\w.-]+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+?(\d+)\w*)\[([\d,]*)\](\{[^}]*\})?")


class Array(NamedTuple):
    """Size in bytes; whether the array lies in the large memory (scalars do not)."""

    size: float
    is_in_hbm: bool
    dtype: str


class Instruction(NamedTuple):
    """One line: results, kind, names of the operands, and the rest of the line."""

    results: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    rest: str

    def called(self, attribute: str) -> str:
        """Returns the name of the computation that an attribute names."""
        return re.search(rf"{attribute}=\{{?%?([\w.-]+)", self.rest)[1]


class Collective(NamedTuple):
    """An exchange between devices.

    Args:
        kind: str. One of `COLLECTIVES`.
        times: int. Number of exchanges per step.
        size: int. Bytes of the whole value on one device, each time.
        group: int. Number of devices that take part.
    """

    kind: str
    times: int
    size: int
    group: int

    @property
    def sent(self) -> float:
        """Bytes that a device sends per step around a ring."""
        rounds = {"all-reduce": 2, "collective-permute": 0}.get(self.kind, 1)
        share = rounds * (self.group - 1) / self.group if rounds else 1
        return share * self.times * self.size


# Instructions by name, in the order in which they run.
Computation = dict[str, Instruction]


class Work(NamedTuple):
    """The work of one device in a step.

    Args:
        collectives: list of `Collective`. Exchanges with other devices.
        memory_bytes: int. Bytes moved to and from HBM.
        kinds: dict. Number of kernels and bytes by kind: "products"; "attention", fused
            kernels; "attention passes", all others between its products;
            "normalization", with residuals and biases; "activation", "head", "gather",
            "optimizer" and "other".
    """

    collectives: list[Collective]
    memory_bytes: int
    kinds: dict[str, tuple[int, int]]


def read(text: str, num_devices: int) -> Work:
    """Reads the program of one device after all optimizations.

    Exchanges that name no groups are among `num_devices`. Raises `ValueError` if it is
    unknown how often a loop runs.
    """
    program, entry = _parse(text)
    collectives, kinds = [], {}
    for one, times, own, is_fused in _executed(program, entry, 1, False):
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            group = _group_size(one.rest, num_devices)
            size = sum(_size(own[name]) for name in one.operands)
            size *= group if kind == "all-gather" else 1
            collectives.append(Collective(kind, times, int(size), group))
        if not is_fused and (moved := _moved(one, own, program)):
            kind = _kind(one, program)
            kernels, total = kinds.get(kind, (0, 0.0))
            kinds[kind] = kernels + times, total + times * moved
    kinds = {kind: (kernels, int(total)) for kind, (kernels, total) in kinds.items()}
    return Work(collectives, sum(total for _, total in kinds.values()), kinds)


def _kind(one: Instruction, program: dict[str, Computation]) -> str:
    """Returns a name of `_KINDS`, "products" or "other"."""
    parts = [one]
    if one.opcode == "fusion":
        parts += reversed(program[one.called("calls")].values())
    if re.search("fmha|tpu_custom_call", one.rest):
        return "attention"
    if any(p.opcode in ("dot", "convolution") or "__cublas" in p.rest for p in parts):
        return "products"
    names = (re.search(r'op_name="([^"]+)"', part.rest) for part in parts)
    name = next((match[1] for match in names if match), "")
    fits = (kind for kind, pattern in _KINDS.items() if pattern.search(name))
    return next(fits, "other")


def _parse(text: str) -> tuple[dict[str, Computation], str]:
    """Returns the computations by name, and the name of the entry computation."""
    program: dict[str, Computation] = {}
    entry = name = ""
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            name = start[2]
            program[name] = {}
            entry = name if start[1] else entry
        elif (match := _INSTRUCTION.match(line)) and name:
            operands, _, rest = match[4].partition("), ")
            results = tuple(map(_array, _ARRAY.finditer(match[2])))
            names = tuple(re.findall(r"%([\w.-]+)", operands))
            rest = operands if match[3] in ("parameter", "constant") else rest
            program[name][match[1]] = Instruction(results, match[3], names, rest)
    return program, entry


def _array(match: re.Match) -> Array:
    sizes = [int(n) for n in match[3].split(",") if n]
    # A TPU stores whole tiles, such as 8 x 128, of the dimensions named first.
    if tiled := re.match(r"\{([\d,]+):T\(([\d,]+)\)", match[4] or ""):
        axes, tile = ([int(n) for n in group.split(",")] for group in tiled.groups())
        for axis, whole in zip(axes, reversed(tile), strict=False):
            sizes[axis] += -sizes[axis] % whole
    is_elsewhere = re.search(r"S\([1-9]", match[4] or "") or not match[3]
    return Array(math.prod(sizes) * int(match[2] or 8) / 8, not is_elsewhere, match[1])


def _size(one: Instruction) -> float:
    return sum(array.size for array in one.results)


def _executed(
    program: dict[str, Computation], name: str, times: int, is_fused: bool
) -> Iterator[tuple[Instruction, int, Computation, bool]]:
    """Yields every instruction with its number of executions and its computation."""
    for one in program[name].values():
        yield one, times, program[name], is_fused
        if one.opcode == "while":
            count = times * _trips(program, one)
            yield from _executed(program, one.called("body"), count, False)
        elif called := _CALLS.search(one.rest):
            is_part = is_fused or one.opcode not in ("call", "async-start")
            yield from _executed(program, called[1], times, is_part)


def _trips(program: dict[str, Computation], loop: Instruction) -> int:
    """Returns the number of iterations of a loop from 0 to a constant."""
    if match := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(match[1])
    condition = program[loop.called("condition")]
    limits = [
        condition[name].rest
        for one in condition.values()
        for name in one.operands
        if one.opcode == "compare" and "direction=LT" in one.rest
        if condition[name].opcode == "constant"
    ]
    need = f"the loop with {loop.called('condition')} must count to a constant"
    require(len(limits) == 1, need, error=ValueError)
    return int(limits[0].split(")")[0])


def _group_size(rest: str, num_devices: int) -> int:
    """Returns the number of devices that exchange with each other."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return listed[1].count(",") + 1
    # [2,8]<=[16] means two groups of eight.
    shape = re.search(r"replica_groups=\[(?:\d+,)*(\d+)\]<=", rest)
    return int(shape[1]) if shape else num_devices


def _moved(one: Instruction, own: Computation, program) -> float:
    """Returns the bytes that an instruction moves from and to the large memory."""
    if one.opcode in _FREE or one.opcode.endswith(("-done", "-update")):
        return 0.0
    if one.opcode == "custom-call":
        if not _LIBRARY.search(one.rest):
            return 0.0
        # Arrays of bytes are memory that the library works in.
        arrays = [array for array in one.results if array.dtype != "s8"]
        arrays += [array for name in one.operands for array in own[name].results]
        return sum(array.size for array in arrays if array.is_in_hbm)
    if one.opcode == "copy-start":
        # The results are both ends of the transfer, and a token to wait for.
        ends = one.results[:2]
        return min(end.size for end in ends) * sum(end.is_in_hbm for end in ends)
    moved = 0.0
    for index, name in enumerate(one.operands):
        if any(array.is_in_hbm for array in own[name].results):
            moved += _read(one, index, _size(own[name]), program)
    sizes = _written(one, own, program)
    if len(sizes) != len(one.results):
        sizes = [array.size for array in one.results]
    pairs = zip(sizes, one.results, strict=True)
    return moved + sum(size for size, array in pairs if array.is_in_hbm)


def _read(user: Instruction, index: int, size: float, program) -> float:
    """Returns the bytes of an operand of this size that an instruction reads."""
    if user.opcode != "fusion":
        if index or user.opcode not in (*_SLICES, *_UPDATES):
            return size
        return min(size, _size(user)) if user.opcode in _SLICES else 0.0
    names, total = set(), 0.0
    for name, one in program[user.called("calls")].items():
        is_it = one.opcode == "parameter" and one.rest.split(")")[0] == str(index)
        if is_it or (one.opcode in ("bitcast", "reshape") and names & {*one.operands}):
            names.add(name)
        else:
            places = [i for i, name in enumerate(one.operands) if name in names]
            total += sum(_read(one, place, size, program) for place in places)
    return min(total, size)


def _written(one: Instruction, own: Computation, program) -> list[float]:
    """Returns the bytes of each of its results that an instruction writes."""
    if one.opcode == "fusion":
        inner = program[one.called("calls")]
        return _written(list(inner.values())[-1], inner, program)  # the root is last
    if one.opcode in ("tuple", "bitcast"):
        sizes_of = [_written(own[name], own, program) for name in one.operands]
        return [size for sizes in sizes_of for size in sizes]
    if one.opcode in _UPDATES:
        return [_size(own[one.operands[_UPDATES[one.opcode]]])]
    return [array.size for array in one.results]
