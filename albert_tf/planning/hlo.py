"""Reads what a chip does in one step from the text of a compiled program (HLO).

XLA's own analysis counts the body of a loop once. Here it counts as often as it runs.
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
# They move nothing, or what they move is counted where it is started.
_FREE = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota"),
    *("while", "call", "conditional", "after-all", "partition-id", "opt-barrier"),
    "custom-call",  # of this program: names for memory that other instructions use
    "async-start",  # here a SparseCore changes a few numbers
)
# They read a part of their first operand, as large as their result.
_SLICES = ("dynamic-slice", "slice", "gather")
# They change a part of their first operand in place. -> the operand that is the part.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*)"
)
_ARRAY = re.compile(r"\b(pred|[a-z]+?(\d+)\w*)\[([\d,]*)\](\{[^}]*\})?")


class Array(NamedTuple):
    """Size in bytes, and whether it lies in the large memory, as no scalar does."""

    size: float
    is_in_hbm: bool


class Instruction(NamedTuple):
    """One line: results, kind, names of the operands, what follows them."""

    results: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    rest: str

    @property
    def size(self) -> float:
        """Bytes of all results."""
        return sum(one.size for one in self.results)

    def called(self, attribute: str) -> str:
        """Returns the name of the computation that an attribute names."""
        return re.search(rf"{attribute}=\{{?%?([\w.-]+)", self.rest)[1]


class Collective(NamedTuple):
    """An exchange between chips.

    Args:
        kind: str. One of `COLLECTIVES`.
        times: int. How often a step does it.
        size: int. Bytes of the whole value on one chip, each time.
        group: int. Number of chips that take part.
    """

    kind: str
    times: int
    size: int
    group: int

    @property
    def sent(self) -> float:
        """Bytes that a chip sends per step around a ring."""
        if self.kind == "collective-permute":
            return self.times * self.size
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * self.times * self.size * (self.group - 1) / self.group


class Reading(NamedTuple):
    """What a chip does in a step.

    Args:
        collectives: tuple of `Collective`.
        memory_bytes: int. Bytes read from and written to its large memory (HBM).
    """

    collectives: tuple[Collective, ...]
    memory_bytes: int


Computation = dict[str, Instruction]


def read(text: str, num_chips: int) -> Reading:
    """Returns what one chip does in one step.

    Args:
        text: str. The program of one chip after all optimizations, as `as_text` of a
            compiled JAX function gives it.
        num_chips: int. Number of chips, where an exchange names no groups.

    Raises:
        ValueError: If it cannot be told how often a loop runs.
    """
    program, entry = _parse(text)
    collectives, total = [], 0.0
    for one, times, own, is_fused in _executed(program, entry, 1, False):
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            group = _group_size(one.rest, num_chips)
            size = sum(own[name].size for name in one.operands)
            size *= group if kind == "all-gather" else 1
            collectives.append(Collective(kind, times, int(size), group))
        if not is_fused:
            total += times * _traffic(one, own, program)
    return Reading(tuple(collectives), int(total))


def _parse(text: str) -> tuple[dict[str, Computation], str]:
    """Returns the computations by name, and the name of the first one to run."""
    program: dict[str, Computation] = {}
    entry = name = ""
    for line in text.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            name = start[2]
            program[name] = {}
            entry = name if start[1] else entry
            continue
        found = _INSTRUCTION.match(line)
        if found and name:
            # The root is the last line of a computation.
            given, _, rest = found[4].partition("), ")
            if found[3] in ("parameter", "constant"):
                rest = given
            program[name][found[1]] = Instruction(
                tuple(map(_array, _ARRAY.finditer(found[2]))),
                found[3],
                tuple(re.findall(r"%([\w.-]+)", given)),
                rest,
            )
    return program, entry


def _array(found: re.Match) -> Array:
    count = math.prod(int(n) for n in found[3].split(",") if n)
    is_elsewhere = re.search(r"S\([1-9]", found[4] or "") or not found[3]
    return Array(count * int(found[2] or 8) / 8, not is_elsewhere)


def _executed(
    program: dict[str, Computation], name: str, times: int, is_fused: bool
) -> Iterator[tuple[Instruction, int, Computation, bool]]:
    """Yields every instruction with how often it runs, and its computation."""
    own = program[name]
    for one in own.values():
        yield one, times, own, is_fused
        if one.opcode == "while":
            count = times * _trips(program, one)
            yield from _executed(program, one.called("body"), count, False)
        elif one.opcode in ("fusion", "async-start"):
            yield from _executed(program, one.called("calls"), times, True)
        elif "called_computations=" in one.rest:
            name = one.called("called_computations")
            yield from _executed(program, name, times, True)
        elif one.opcode == "call":
            yield from _executed(program, one.called("to_apply"), times, is_fused)


def _trips(program: dict[str, Computation], loop: Instruction) -> int:
    """Returns how often a loop runs that counts from 0 to a constant."""
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest)
    if known:
        return int(known[1])
    condition = program[loop.called("condition")]
    limits = [
        condition[name].rest
        for one in condition.values()
        for name in one.operands
        if one.opcode == "compare" and "direction=LT" in one.rest
        if condition[name].opcode == "constant"
    ]
    name = loop.called("condition")
    require(
        len(limits) == 1,
        f"the loop with the condition {name} must count to a constant",
        error=ValueError,
    )
    return int(limits[0].rstrip(")"))


def _group_size(rest: str, num_chips: int) -> int:
    """Returns how many chips exchange with each other."""
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", rest)
    if listed:
        return listed[1].count(",") + 1
    # [2,8]<=[16]: two groups of eight.
    shape = re.search(r"replica_groups=\[(?:\d+,)*(\d+)\]<=", rest)
    return int(shape[1]) if shape else num_chips


def _traffic(
    one: Instruction, own: Computation, program: dict[str, Computation]
) -> float:
    """Returns the bytes that an instruction moves from and to the large memory."""
    if one.opcode in _FREE or one.opcode.endswith(("-done", "-update")):
        return 0.0
    operands = [own[name] for name in one.operands]
    if one.opcode in ("copy-start", "slice-start"):
        # The results are source, destination and something to wait for.
        ends = one.results[0], one.results[1]
        return min(end.size for end in ends) * sum(end.is_in_hbm for end in ends)
    inner = program[one.called("calls")] if one.opcode == "fusion" else None
    moved = 0.0
    for index, operand in enumerate(operands):
        if any(array.is_in_hbm for array in operand.results):
            if inner is None:
                moved += _read_by(one, index, operand.size)
            else:
                moved += _read_inside(program, inner, index, operand.size)
    if inner is None:
        sizes = [_written_by(one, own)] if len(one.results) == 1 else None
    else:
        sizes = [_written_inside(program, inner, root) for root in _roots(inner)]
    if sizes is None or len(sizes) != len(one.results):
        sizes = [array.size for array in one.results]
    pairs = zip(sizes, one.results, strict=True)
    return moved + sum(size for size, array in pairs if array.is_in_hbm)


def _read_by(user: Instruction, index: int, size: float) -> float:
    """Returns how much of an operand of this size an instruction reads."""
    if index == 0 and user.opcode in _SLICES:
        return min(size, user.size)
    return 0.0 if index == 0 and user.opcode in _UPDATES else size


def _read_inside(program, inner: Computation, index: int, size: float) -> float:
    """Returns how much a fusion reads of its operand with this index."""
    number = str(index)
    for name, one in inner.items():
        if one.opcode == "parameter" and one.rest.rstrip(")") == number:
            return _read_of(program, inner, name, size)
    return size


def _read_of(program, inner: Computation, name: str, size: float) -> float:
    """Returns how much of a value the instructions of a fusion read."""
    total = 0.0
    for user_name, user in inner.items():
        for index in (i for i, given in enumerate(user.operands) if given == name):
            if user.opcode in ("bitcast", "reshape"):
                total += _read_of(program, inner, user_name, size)
            elif user.opcode == "fusion":
                called = program[user.called("calls")]
                total += _read_inside(program, called, index, size)
            else:
                total += _read_by(user, index, size)
    return min(total, size)


def _roots(inner: Computation) -> list[Instruction]:
    """Returns what a fusion's results are computed by, in their order."""
    last = list(inner.values())[-1]
    return [inner[n] for n in last.operands] if last.opcode == "tuple" else [last]


def _written_inside(program, inner: Computation, root: Instruction) -> float:
    """Returns how many bytes of a result a fusion writes."""
    if root.opcode == "bitcast":
        return _written_inside(program, inner, inner[root.operands[0]])
    if root.opcode == "fusion":
        called = program[root.called("calls")]
        roots = _roots(called)
        if len(roots) == 1:
            return _written_inside(program, called, roots[0])
    return _written_by(root, inner)


def _written_by(one: Instruction, own: Computation) -> float:
    """Returns how many bytes of its result an instruction writes."""
    part = _UPDATES.get(one.opcode)
    return one.size if part is None else own[one.operands[part]].size
