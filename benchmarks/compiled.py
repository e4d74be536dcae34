"""Reads where a step's memory traffic goes from a program compiled for a GPU.

No GPU is needed. Models with four and with six layers are compiled: half the difference
is the traffic of a layer, and the rest is moved once per step.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError, require
from albert_tf.planning.compiler import check_installed, compile_step
from albert_tf.planning.plan import FORMS, check_batch
from albert_tf.planning.plan_settings import pretraining
from albert_tf.planning.roofline import DENSE
from albert_tf.planning.topologies import find_topology
from benchmarks.objectives_report import to_table
from benchmarks.report import Report, Row

_LAYERS = 4, 6
_NOTES = (
    "GB: the operands and results of all kernels of a kind. A step: once, and for all "
    "layers. attention: fused kernels; attention passes: other kernels "
    "between its products. normalization: with residuals and biases. Products are "
    "those of cuBLAS, which a GPU may replace after trying others.",
)


def run(
    preset: str,
    shapes: tuple[tuple[int, int], ...],
    machine: str,
    depths: tuple[str, ...],
    *,
    compiled: Callable[[dict], dict[str, Any]] = compile_step,
) -> Report:
    """Compiles steps for a machine; returns kernels and bytes by kind of work.

    Args:
        preset: str. Size of the model.
        shapes: tuple of (int, int). Rows and tokens.
        machine: str. Name of GPUs, as for `albert-tf plan --topology`.
        depths: tuple of str. Forms of the encoder, as for `pretrain`.

    Raises:
        UsageError: If there is no such machine or form, its compiler is not installed,
            or it cannot compute such batches.
    """
    topology = find_topology(machine, "compile_for")
    need = f"--depth must be some of {', '.join(FORMS)}"
    require(depths and set(depths) <= set(FORMS), need, ",".join(depths))
    check_installed(topology)
    rows, parts = [], []
    for (batch, length), depth in itertools.product(shapes, depths):
        given = {"preset": preset, "train_batch_size": batch, "max_seq_length": length}
        chosen = pretraining(given | {"optimizer": "adamw"}, {})
        try:
            check_batch(chosen, AlbertConfig.from_preset(preset), topology, 1)
        except UsageError as error:
            raise UsageError(f"--shapes={batch}x{length}: {error}") from None
        settings = dataclasses.asdict(chosen)
        few, more = (
            compiled(
                {
                    "settings": settings,
                    "config": config.to_dict(),
                    "topology": machine,
                    "depth": depth,
                    "parts": 1,
                }
            )
            for config in (
                AlbertConfig.from_preset(preset, num_hidden_layers=n) for n in _LAYERS
            )
        )
        name = f"{preset}, {batch} x {length}, {topology.name}, {depth}"
        memory = (more["temporaries"] - few["temporaries"]) / (_LAYERS[1] - _LAYERS[0])
        layers = AlbertConfig.from_preset(preset).num_hidden_layers
        own, table = _kinds(name, few["kinds"], more["kinds"], layers)
        rows += [*own, Row(f"{name}, a layer: temporaries", memory / 2**30, "GiB")]
        kept = f"Temporaries of a layer: {memory / 2**30:.2f} GiB."
        parts.append(f"**{name}**\n\n{table}\n\n{kept}")
    text = "\n\n".join(parts)
    return Report("Compiled step", rows, notes=_NOTES, text=text)


def _kinds(name: str, few: dict, more: dict, layers: int) -> tuple[list[Row], str]:
    """Returns kernels and bytes of a layer, once and of a step, as rows and as text."""
    table: dict[str, dict[str, float]] = {}
    for kind in {**more, **few}:
        pairs = zip(few.get(kind, (0, 0)), more.get(kind, (0, 0)), strict=True)
        cells = {}
        for unit, (small, large) in zip(("kernels", "GB"), pairs, strict=True):
            scale = 1e9 if unit == "GB" else 1
            layer = (large - small) / (_LAYERS[1] - _LAYERS[0]) / scale
            cells[f"{unit}, a layer"] = layer
            cells[f"{unit}, once"] = once = small / scale - _LAYERS[0] * layer
            cells[f"{unit}, a step"] = once + layers * layer
        table[kind] = cells
    passes = [cells for kind, cells in table.items() if kind not in DENSE]
    columns = list(passes[0])
    table["all but products and attention"] = {
        column: sum(cells[column] for cells in passes) for column in columns
    }
    rows = [
        Row(f"{name}: {kind}, {column}", value, "")
        for kind, cells in table.items()
        for column, value in cells.items()
    ]
    cells = {k: {c: f"{v:.2f}" for c, v in one.items()} for k, one in table.items()}
    return rows, "\n".join(to_table(cells))
