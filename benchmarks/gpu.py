"""Measures JAX's step and attention on a GPU, next to transformers'.

It needs Keras, JAX and NumPy, but not TensorFlow: real rows come from a file that
`--write_batches` has made elsewhere. Results are saved after every group.

**Model FLOPs** are the FLOPs of the encoder's matrix products in a forward pass
(`AlbertConfig.flops_per_token`: the parameters of a block are counted for each of its L
applications, and both products of the attention), times three for training. Heads,
activations, recomputation and padding are not counted; an example in a packed row
attends only to itself. The utilisation is their share of the peak of the matrix units
in dense bfloat16.

Legend: `B` rows, `T` sequence, `P` predictions.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, UsageError, require
from benchmarks import gpu_page
from benchmarks.cases import (
    EAGER,
    FUSED,
    GRADIENT,
    OUTPUT,
    PRODUCT,
    PRODUCT_SIZE,
    Case,
)
from benchmarks.contestants import Contestant, in_turns
from benchmarks.report import Report
from benchmarks.rows import (
    PACKED,
    PADDED,
    random_batch,
    read_rows,
    scored_everywhere,
    with_text,
)

PARTS = ("sizes", "table", "packed", "depth")
_OURS, _THEIRS = "jax", "transformers"
# Rows of 512 tokens that fill half of a GPU of 80 GB.
_ROWS = {"base": 64, "large": 32, "xlarge": 16, "xxlarge": 16}
_LENGTH = 512
_STEPS = 10  # least number of a turn: between turns, the device waits for the host
# Batches and lengths of transformers' table.
_TABLE = {
    GRADIENT: [(B, T) for B in (2, 4, 8) for T in (256, 512)],
    OUTPUT: [(B, T) for B in (4, 8, 16) for T in (128, 256, 512)],
}
# Forms of the depth. `layers.depth` has the names, but imports Keras, which needs to
# know its backend if TensorFlow is missing.
_FORMS = ("unrolled", "loop", "loop_remat")
_TINY = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parts and sizes to measure.

    Attributes:
        engines: tuple of str. "jax" and perhaps "transformers".
        parts: tuple of str. Some of `PARTS`, in order.
        sizes: tuple of str. Sizes of the parts `sizes` and `depth`.
        rows_file: str. From `rows.write_rows`, for the part `packed`, and for tokens of
            the part `sizes` that are not random.
        rounds: int. Turns of every contestant, whose median is shown.
        tiny: bool. Whether tiny models show, also without a GPU, that everything runs.
    """

    engines: tuple[str, ...] = (_OURS, _THEIRS)
    parts: tuple[str, ...] = PARTS
    sizes: tuple[str, ...] = ("base", "xxlarge", "large", "xlarge")
    rows_file: str = ""
    rounds: int = 20
    tiny: bool = False

    def __post_init__(self):
        fits = len(self.parts) > 0 and set(self.parts) <= set(PARTS)
        require(fits, f"--parts must be some of {', '.join(PARTS)}", self.parts)
        fits = len(self.sizes) > 0 and set(self.sizes) <= set(_ROWS)
        require(fits, f"--sizes must be some of {', '.join(_ROWS)}", self.sizes)
        needs = PACKED in self.parts and not self.rows_file
        rule = "--parts=packed requires --batches_file, which --write_batches makes"
        require(not needs, rule, self.rows_file)

    def config(self, size: str) -> AlbertConfig:
        """Returns the config of a size."""
        changes = _TINY if self.tiny else {}
        return AlbertConfig.from_preset(f"albert_{size}_v2", **changes)

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """Returns the shape of a batch."""
        return (2, 16) if self.tiny else (rows, length)


class Group(NamedTuple):
    """Cases that are prepared together.

    Attributes:
        part: str. The part of the page.
        title: str. The common property of the cases.
        cases: dict. Cases by their names, by engine.
        turns: list of lists of str. Names of cases that take turns, of all engines.
    """

    part: str
    title: str
    cases: Mapping[str, Mapping[str, Case]]
    turns: list[list[str]]


def run(settings: Settings, save: Callable[[Report], None]) -> Report:
    """Measures group after group.

    Nothing else is on the device meanwhile: cases prepared ahead would take memory and
    time from the measured ones.

    Args:
        settings: `Settings`.
        save: callable. Called with the report of the results so far.

    Raises:
        UsageError: If there is no GPU, or a setting is out of its range.
    """
    found: list[dict[str, Any]] = []
    device = ""
    report = gpu_page.to_report(found, device)
    for group in _groups(settings):
        with contextlib.ExitStack() as stack:
            running = {n: stack.enter_context(Contestant(n)) for n in group.cases}
            if not device:
                device = running[_OURS].device()
                if device == "cpu" and not settings.tiny:
                    raise UsageError(
                        "--backend=jax: JAX sees no GPU here; --scale=small shows with "
                        "tiny models that everything runs"
                    )
            for row in _measure(group, running, settings.rounds):
                found.append({"part": group.part, "title": group.title, **row})
                report = gpu_page.to_report(found, device)
                save(report)
    return report


def model_flops(config: AlbertConfig, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the model FLOPs of a training step, as defined by the module."""
    if features.PACK_IDS in batch:
        counts = [np.bincount(row)[1:] for row in batch[features.PACK_IDS]]
        lengths = np.concatenate(counts)
    else:
        lengths = batch[features.PADDING_MASK].sum(1)
    return 3 * sum(n * config.flops_per_token(n) for n in lengths.tolist() if n)


def _measure(
    group: Group, running: Mapping[str, Contestant], rounds: int
) -> Iterator[dict[str, Any]]:
    """Yields the results of the cases that take turns, as values for JSON."""
    facts, runs = {}, {}
    cases = {name: one for some in group.cases.values() for name, one in some.items()}
    # One engine after another, because XLA tries kernels on the device while compiling.
    for engine, some in group.cases.items():
        try:
            running[engine].prepare(some)
            facts |= running[engine].facts()
        except DataError as e:
            facts |= {name: {"failed": str(e)} for name in some}
        runs |= {n: functools.partial(running[engine].run, n) for n in some}
    for names in group.turns:
        taking = {name: runs[name] for name in names if "failed" not in facts[name]}
        title = f"{group.title}: {', '.join(taking)}"
        try:
            seconds = in_turns(taking, rounds, title, _STEPS)
        except DataError as e:
            facts |= {name: {"failed": str(e)} for name in taking}
        for name in names:
            row = {"name": name, **facts[name]}
            if "failed" not in row:
                row["seconds"] = [round(one, 7) for one in seconds[name]]
                row |= _work(cases[name])
            yield row


def _work(case: Case) -> dict[str, int]:
    """Returns the amounts that a step computes."""
    if case.work == PRODUCT:
        return {"flops": 2 * PRODUCT_SIZE**3}
    mask = case.batch[features.PADDING_MASK]
    flops = model_flops(case.config, case.batch)
    if case.work == OUTPUT:
        flops //= 3
    return {"tokens": int(mask.sum()), "positions": mask.size, "flops": flops}


def _groups(settings: Settings) -> Iterator[Group]:
    """Yields the groups to measure, in order."""
    for part in settings.parts:
        if part == "sizes":
            for size in settings.sizes:
                yield _size(settings, size)
        elif part == "table":
            for work, shapes in _TABLE.items():
                yield _table(settings, work, shapes)
        elif part == "packed":
            yield _packed(settings)
        else:
            for size in settings.sizes:
                yield _depth(settings, size)


def _size(settings: Settings, size: str) -> Group:
    config = settings.config(size)
    rows, length = settings.shape(_ROWS[size], _LENGTH)
    batch = random_batch(config, rows, length)
    if settings.rows_file:
        batch = with_text(batch, read_rows(settings.rows_file, PACKED, rows))
    # In this order, because the memory of a process is that of its largest so far.
    ours = {
        gpu_page.OURS: Case(config, batch),
        gpu_page.OURS_EVERYWHERE: Case(config, scored_everywhere(batch)),
    }
    if size == settings.sizes[0] and not settings.tiny:
        ours[gpu_page.PRODUCT] = Case(config, {}, PRODUCT)
    cases = {_OURS: ours}
    if _THEIRS in settings.engines:
        cases[_THEIRS] = {
            gpu_page.THEIRS: Case(config, batch),
            gpu_page.THEIRS_MASKED: Case(config, batch, masked=True),
        }
    names = [name for some in cases.values() for name in some]
    return Group("sizes", f"{size}, {rows} x {length}", cases, [names])


def _table(settings: Settings, work: str, shapes) -> Group:
    config = settings.config("base")
    cases: dict[str, dict[str, Case]] = {name: {} for name in settings.engines}
    turns = []
    for shape in shapes[:1] if settings.tiny else shapes:
        batch = random_batch(config, *settings.shape(*shape))
        names = []
        for engine in settings.engines:
            for attention in (EAGER, FUSED):
                name = f"{shape[0]} x {shape[1]}: {engine}, {attention}"
                cases[engine][name] = Case(config, batch, work, attention=attention)
                names.append(name)
        turns.append(names)
    return Group("table", work, cases, turns)


def _packed(settings: Settings) -> Group:
    config = settings.config("base")
    rows, _ = settings.shape(_ROWS["base"], _LENGTH)
    batches = {n: read_rows(settings.rows_file, n, rows) for n in (PACKED, PADDED)}
    length = batches[PACKED][features.TOKEN_IDS].shape[1]
    ours = {name: Case(config, batch) for name, batch in batches.items()}
    for name, batch in batches.items():
        ours[name + gpu_page.EVERYWHERE] = Case(config, scored_everywhere(batch))
    cases = {_OURS: ours}
    if _THEIRS in settings.engines:
        cases[_THEIRS] = {gpu_page.THEIRS_PADDED: Case(config, batches[PADDED])}
    names = [name for some in cases.values() for name in some]
    return Group(PACKED, f"base, {rows} x {length}", cases, [names])


def _depth(settings: Settings, size: str) -> Group:
    config = settings.config(size)
    rows, length = settings.shape(_ROWS[size], _LENGTH)
    batch = random_batch(config, rows, length)
    cases = {form: Case(config, batch, depth=form) for form in _FORMS}
    return Group("depth", f"{size}, {rows} x {length}", {_OURS: cases}, [list(_FORMS)])
