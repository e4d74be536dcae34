"""Measures layers that share their weights, in a loop and one after another.

Each number of layers in each form of `--depth` is trained in its own process.
"""

import contextlib
import dataclasses
import multiprocessing
import statistics
import time
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, require
from albert_tf.layers.depth import LOOP, LOOP_REMAT, UNROLLED
from albert_tf.planning import facts
from benchmarks import step_speed
from benchmarks.cases import Case
from benchmarks.contestants import Contestant
from benchmarks.costs import peak_memory, to_text
from benchmarks.objectives_report import to_table
from benchmarks.report import Report, Row
from benchmarks.rows import random_batch

FORMS = (UNROLLED, LOOP, LOOP_REMAT)
ENGINES = ("tensorflow", "jax")
_SEED = 12345
_NOTES = (
    "first step: from the call to its end, with tracing and compilation. {} "
    "activations: the same without weights, gradients and the optimizer, 16 bytes per "
    "parameter. step: median of the steps after the first."
)
_OF_ENGINES = {
    "tensorflow": "nodes: the nodes of a step's graph and all its functions. peak "
    "memory: the peak of the process, minus the memory of TensorFlow alone;",
    "jax": "peak memory: the needs of the compiled program, as reported by XLA;",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The models and forms to measure.

    Attributes:
        step: `step_speed.Settings`. Size, shapes, number of steps, and how they are
            compiled.
        layers: tuple of int. Numbers of layers.
        gigabytes: float. Models with a larger estimate are not trained.
        engine: str. One of `ENGINES`.
    """

    step: step_speed.Settings
    layers: tuple[int, ...] = (6, 12, 24, 48)
    gigabytes: float = 12.0
    engine: str = "tensorflow"


def run(settings: Settings) -> Report:
    """Measures every form of every number of layers, with every shape."""
    step, table, rows = settings.step, {}, []
    for shape in step.shapes:
        for layers in settings.layers:
            config = AlbertConfig.from_preset(step.preset, num_hidden_layers=layers)
            for form in FORMS:
                name = f"{shape[0]} x {shape[1]}, {layers} layers, {form}"
                estimate = _estimate(settings, config, form, shape)
                if estimate > settings.gigabytes * 2**30:
                    why = f"not tried: needs at least {to_text(estimate)} (estimated)"
                    table[name] = {"first step": why}
                    continue
                given = dataclasses.replace(step, depth=form, shapes=(shape,))
                measure = _in_process if settings.engine == "tensorflow" else _of_jax
                try:
                    own = _rows(name, measure(given, config))
                except DataError as e:
                    table[name] = {"first step": str(e)}
                    continue
                rows += own
                table[name] = {row.name.split(": ")[1]: _text(row) for row in own}
    columns = max((list(cells) for cells in table.values()), key=len)
    table = {k: {c: v.get(c, "-") for c in columns} for k, v in table.items()}
    compiled = ", compiled by XLA" if step.jit_compile else ""
    title = f"Depth of {step.preset} in training, {step.precision}{compiled}"
    title += " on JAX" if settings.engine == "jax" else ""
    notes = (_NOTES.format(_OF_ENGINES[settings.engine]),)
    return Report(title, rows, notes=notes, text="\n".join(to_table(table)))


def _estimate(settings: Settings, config, form, shape) -> int:
    size = 2 if settings.step.precision == "bfloat16" else 4
    found = facts.describe(config, *shape, bytes_per_value=size)
    kept = "activations_recomputed" if form == LOOP_REMAT else "activations"
    return sum(found[part] for part in ("weights", "gradients", "optimizer", kept))


def _in_process(given: step_speed.Settings, config: AlbertConfig) -> Any:
    """Returns the measurements of a separate process.

    Raises:
        DataError: If it has ended, for example by lack of memory.
    """
    context = multiprocessing.get_context("spawn")
    line, theirs = context.Pipe()
    process = context.Process(
        target=_measure, args=(theirs, given, config), daemon=True
    )
    process.start()
    theirs.close()  # so that the end of the process is noticed
    with contextlib.suppress(EOFError):
        found = line.recv()
        process.join()
        return found
    process.join()
    raise DataError(f"its process ended with code {process.exitcode}")


def _of_jax(given: step_speed.Settings, config: AlbertConfig) -> dict[str, Any]:
    """Measures like `_in_process`, on JAX."""
    batch, name = random_batch(config, *given.shapes[0]), given.depth
    case = Case(config, batch, precision=given.precision, depth=given.depth)
    with Contestant("jax") as contestant:
        contestant.prepare({name: case})
        found = contestant.facts()[name]
        require("failed" not in found, found.get("failed"), error=DataError)
        later = [contestant.run(name, 1) for _ in range(given.steps)]
    memory, kept = found["program"], 4 * facts.describe(config)["weights"]
    known = {"seconds": [found["first"], *later], "memory": memory}
    return known | {"activations": memory - kept}


def _measure(line, given: step_speed.Settings, config: AlbertConfig) -> None:
    """Trains some steps; sends the measurements."""
    import tensorflow as tf

    from albert_tf.models.masked_lm import AlbertPretrainer
    from albert_tf.objectives.pretraining import ALBERT

    tf.zeros(()).numpy()  # TensorFlow allocates memory on first use
    before = peak_memory()
    model = AlbertPretrainer(config, seed=_SEED, dtype=step_speed.dtype_policy(given))
    batch = random_batch(config, *given.shapes[0])
    step, iterator = step_speed.make_step(given, model, ALBERT, batch)
    seconds = []
    for _ in range(1 + given.steps):
        start = time.perf_counter()
        float(step.train(iterator, 1)["losses"][0])
        seconds.append(time.perf_counter() - start)
    memory = peak_memory() - before
    found = {"seconds": seconds, "nodes": _count_nodes(step, iterator)}
    found |= {"memory": memory, "activations": memory - 16 * model.count_params()}
    line.send(found)


def _count_nodes(step, iterator) -> int:
    import tensorflow as tf

    given = iterator, tf.constant(1), tf.zeros(len(step.sum_names))
    graph = step._train.get_concrete_function(*given).graph.as_graph_def()
    return len(graph.node) + sum(len(one.node_def) for one in graph.library.function)


def _rows(name: str, found: dict[str, Any]) -> list[Row]:
    first, *others = found["seconds"]
    nodes = [Row(f"{name}: nodes", found["nodes"], "")] if "nodes" in found else []
    single = {"seconds": [round(one, 3) for one in found["seconds"]]}
    return [
        Row(f"{name}: first step", first, "s"),
        *nodes,
        Row(f"{name}: peak memory", found["memory"] / 2**30, "GiB"),
        Row(f"{name}: activations", found["activations"] / 2**30, "GiB"),
        Row(f"{name}: step", statistics.median(others), "s", "", single),
    ]


def _text(row: Row) -> str:
    return to_text(row.value * 2**30) if row.unit == "GiB" else row.text()
