"""Plans a pretraining: memory, speed and price on the chips of a slice."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import UsageError, count_of, require
from albert_tf.planning import facts
from albert_tf.planning.compiler import compile_step
from albert_tf.planning.roofline import Times, times
from albert_tf.planning.search import Search, halvings
from albert_tf.planning.topologies import GpuMachine, Topology
from albert_tf.training.pretrain_settings import PretrainSettings

GIB = 2**30
FORMS = ("unrolled", "loop", "loop_remat")
# The contents of a device's memory, by the names of `program.compile_step`.
PARTS = ("arguments", "temporaries", "results", "code")
# The search starts with this many tokens at once.
_USUAL_TOKENS = 8192


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to compute a step, compiled.

    A device computes `rows` at once, `accumulation` times in a step. `found` is the
    result of `program.compile_step`; `times` is None if it does not fit.
    """

    depth: str
    rows: int
    accumulation: int
    found: dict[str, Any]
    times: Times | None

    @property
    def fits(self) -> bool:
        """Whether a device has enough memory."""
        return self.times is not None

    @property
    def total(self) -> int:
        """Bytes of a device's memory that it needs."""
        return self.found.get("needed") or sum(self.found[name] for name in PARTS)

    @property
    def temporaries(self) -> int:
        """Bytes that grow with the rows; if it does not fit, what XLA requested."""
        return self.found.get("needed") or self.found["temporaries"]

    @property
    def seconds(self) -> float:
        """Lower bound of the time of a step."""
        return self.times.step if self.fits else math.inf

    @property
    def least(self) -> float:
        """Lower bound of the time of a step, however few rows are computed at once."""
        return self.times.compute + self.times.network if self.fits else 0.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """A pretraining on a slice, with candidates in the order of their compilation.

    Args:
        model: str. Name of the preset, or path of the config.
        most: dict. Estimated number of rows at once that fit, by form of the encoders.
        efficiency: float. Assumed share of the roofline's speed.
        cost_per_hour: float or None. Price of an hour of the slice.
    """

    model: str
    settings: PretrainSettings
    topology: Topology | GpuMachine
    candidates: list[Candidate]
    most: dict[str, int]
    efficiency: float
    cost_per_hour: float | None

    @property
    def best(self) -> Candidate:
        """The candidate with the shortest step, and of equal ones the least memory."""
        fit = [one for one in self.candidates if one.fits]
        return min(fit, key=lambda one: (one.seconds, one.total))

    def run(self) -> dict[str, float]:
        """Returns hours, chip-hours and, with a price, the cost of all steps.

        `hours_at_least` are the roofline's; the others assume a share of its speed.
        """
        least = self.settings.num_train_steps * self.best.seconds / 3600
        hours, price = least / self.efficiency, self.cost_per_hour
        totals = {"hours_at_least": least, "hours": hours}
        totals["chip_hours"] = hours * self.topology.num_chips
        return totals | ({"cost": hours * price} if price else {})


def make_plan(
    settings: PretrainSettings,
    topology: Topology | GpuMachine,
    *,
    depth: str | None = None,
    parts: int | None = None,
    efficiency: float = 1.0,
    cost_per_hour: float | None = None,
    compiled: Callable[[dict], dict[str, Any]] = compile_step,
) -> Plan:
    """Compiles steps for a slice to find the fastest one that fits.

    Without a depth, all forms of the encoders are compared; without parts, the smallest
    number of micro-batches that fits is searched for.
    """
    config = settings.own_config()
    check_batch(settings, config, topology, parts or 1)
    rows = settings.train_batch_size // topology.num_devices
    model = settings.preset or settings.albert_config_file
    fixed = {"settings": dataclasses.asdict(settings), "config": config.to_dict()}

    def estimate(name: str, size: int = 1) -> float:
        sizes = size, settings.max_seq_length, settings.bytes_per_value
        return facts.describe(config, *sizes)[name]

    def compile_rows(form: str, size: int) -> Candidate:
        name = topology.name
        logging.info("%s, %s: compiling %s, %d rows at once", model, name, form, size)
        chosen = {"topology": name, "depth": form, "parts": rows // size}
        result = compiled(fixed | chosen)
        time = None if "needed" in result else times(result, topology)
        return Candidate(form, size, rows // size, result, time)

    if parts is None:
        sizes = halvings(rows)
        usual = _USUAL_TOKENS // settings.max_seq_length
        start = max((i for i, n in enumerate(sizes) if n <= usual), default=0)
    else:
        sizes = [n for n in range(1, rows // parts + 1) if rows % n == 0]
        start = len(sizes) - 1
    constant = sum(map(estimate, ("weights", "gradients", "optimizer")))
    room = topology.chip.memory_gib * GIB - constant
    repeats = len(set(config.layer_table())) < len(config.layer_table())
    searches = {}
    for form in [depth] if depth else FORMS if repeats else FORMS[:1]:
        fact = "activations_recomputed" if form == "loop_remat" else "activations"
        guess = functools.partial(estimate, fact)
        compile_one = functools.partial(compile_rows, form)
        searches[form] = search = Search(compile_one, sizes, guess, room)
        search.at(start) if parts else search.fastest(start)
    candidates = [one for search in searches.values() for one in search.found.values()]
    if not any(one.fits for one in candidates):
        if parts:
            search.largest(start)
        raise UsageError(_what_fits([*candidates, *search.found.values()], topology))
    most = {form: search.most() for form, search in searches.items() if search.most()}
    return Plan(model, settings, topology, candidates, most, efficiency, cost_per_hour)


def check_batch(settings, config, topology: Topology | GpuMachine, parts: int) -> None:
    """Raises `UsageError` if a batch cannot be divided, or rows are too long."""
    batch, devices = settings.train_batch_size, topology.num_devices
    need = f"--train_batch_size must be a multiple of the {devices} devices of "
    need += topology.name
    if parts > 1:
        need += f" times --gradient_accumulation_steps={parts}"
    require(batch % (devices * parts) == 0, need, batch)
    need = "--precision must be float16 or float32 on a t4, which has no products in "
    need += "bfloat16"
    is_t4, precision = topology.chip.kind == "t4", settings.precision
    require(not is_t4 or precision != "bfloat16", need, precision)
    longest, length = config.max_position_embeddings, settings.max_seq_length
    need = f"--max_seq_length must be at most max_position_embeddings={longest}"
    require(length <= longest, need, length)


def _what_fits(candidates: Sequence[Candidate], topology: Topology | GpuMachine) -> str:
    """Explains that nothing of the requested size fits, and what would."""
    room = f"{topology.chip.memory_gib} GiB of a device of {topology.name}"
    fit = [one for one in candidates if one.fits]
    if not fit:
        least = min(candidates, key=lambda one: one.total)
        return (
            f"--train_batch_size: not even {count_of(least.rows, 'row')} at once fits "
            f"into the {room}, but needs {least.total / GIB:.1f} GiB with "
            f"--depth={least.depth}"
        )
    asked, most = candidates[0], max(fit, key=lambda one: one.rows)
    return (
        f"--gradient_accumulation_steps={asked.accumulation}: {asked.rows} rows at "
        f"once do not fit into the {room}; the largest part that does is "
        f"{count_of(most.rows, 'row')} with --depth={most.depth} "
        f"--gradient_accumulation_steps={most.accumulation}"
    )
