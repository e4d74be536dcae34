"""Shows plans: as tables, as a picture, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.figure import new_figure, to_png
from albert_tf.planning.hlo import Collective
from albert_tf.planning.plan import GIB, PARTS, Candidate, Plan
from albert_tf.planning.roofline import ASSUMPTIONS
from albert_tf.reports.environment import versions
from albert_tf.wording import count_of

_PACKAGES = ("jax", "libtpu", "keras", "albert_tf")


def to_json(plans: Sequence[Plan]) -> dict[str, Any]:
    """Returns all numbers of plans.

    Only `compile_seconds` differ from one run of the command to another.
    """
    return {
        "plans": [_plan_to_json(plan) for plan in plans],
        "assumptions": list(ASSUMPTIONS),
        "versions": versions(_PACKAGES),
    }


def _plan_to_json(plan: Plan) -> dict[str, Any]:
    settings, topology = plan.settings, plan.topology
    names = ("train_batch_size", "max_seq_length", "num_predictions", "objective")
    names += ("optimizer", "precision", "num_train_steps")
    best = plan.best
    return {
        "model": plan.model,
        "topology": topology.name,
        "chips": topology.num_chips,
        "shape": topology.shape,
        "chip": topology.chip._asdict(),
        **{name: getattr(settings, name) for name in names},
        "candidates": [
            {
                "depth": one.depth,
                "rows_at_once": one.rows,
                "gradient_accumulation_steps": one.accumulation,
                "fits": one.fits,
                "best": one is best,
                **one.found,
                **({"seconds": _seconds(one)} if one.fits else {}),
            }
            for one in plan.candidates
        ],
        "most_rows_at_once": plan.most,
        "efficiency": plan.efficiency,
        **plan.run(),
    }


def _seconds(one: Candidate) -> dict[str, float | str]:
    time = one.times
    return {**time._asdict(), "step": time.step, "bound": time.bound}


def to_markdown(plans: Sequence[Plan]) -> str:
    """Returns tables: of one plan all candidates, of several the best of each."""
    shown = _shown(plans)
    parts = [
        "\n".join(f"* {_introduction(plan)}" for plan in plans),
        "Memory of a chip in GiB:",
        _table([_memory(*one) for one in shown]),
        "A step of a chip; seconds as if nothing else took any:",
        _table([_step(*one) for one in shown if one[1].fits]),
        "All steps, with the best of them:",
        _table([_all_steps(plan) for plan in plans]),
        *([_exchanges(plans[0]), _most(plans[0])] if len(plans) == 1 else []),
        "Assumed:",
        "\n".join(f"* {text}" for text in ASSUMPTIONS),
    ]
    known = ", ".join(f"{k} {v}" for k, v in versions(_PACKAGES).items())
    return "\n\n".join([*parts, f"Compiled without a TPU: {known}."]) + "\n"


def to_page(plans: Sequence[Plan], command: str, picture: str) -> str:
    """Returns `to_markdown` with what made it, and with a picture.

    Args:
        plans: sequence of `Plan`.
        command: str. The command.
        picture: str. Name of the file of `draw`.
    """
    return (
        f"# Plans of pretraining on TPUs\n\nTo reproduce: `{command}`\n\n"
        f"![Memory of a chip, and seconds of a step]({picture})\n\n"
        f"{to_markdown(plans)}"
    )


def _shown(plans: Sequence[Plan]) -> list[tuple[str, Candidate, Plan]]:
    """Returns what tables and picture show, with its name."""
    if len(plans) > 1:
        return [(f"{p.model}, {p.topology.name}", p.best, p) for p in plans]
    (plan,) = plans
    best = plan.best
    return [
        (f"{one.depth}, {one.rows}{' (best)' if one is best else ''}", one, plan)
        for one in plan.candidates
    ]


def _introduction(plan: Plan) -> str:
    settings, topology, chip = plan.settings, plan.topology, plan.topology.chip
    rows = settings.train_batch_size
    return (
        f"{plan.model} on {topology.name}: {count_of(topology.num_chips, 'chip')} "
        f"({topology.shape}) with {chip.memory_gib} GiB, {chip.teraflops} TFLOP/s, "
        f"{chip.memory_rate:,} GB/s to their memory and {topology.network_rate:g} GB/s "
        f"to each other; {count_of(rows, 'row')} of {settings.max_seq_length} tokens, "
        f"{rows // topology.num_chips} per chip; {settings.objective}, "
        f"{settings.optimizer}, {settings.precision}"
    )


def _memory(name: str, one: Candidate, plan: Plan) -> dict[str, str]:
    found = {n: f"{one.found[n] / GIB:.2f}" for n in PARTS if n in one.found}
    return {
        "": name,
        "depth": one.depth,
        "rows at once": str(one.rows),
        "micro-batches": str(one.accumulation),
        **{name: found.get(name, "-") for name in PARTS},
        "all": f"{one.total / GIB:.2f}",
        "of": str(plan.topology.chip.memory_gib),
        "fits": "yes" if one.fits else "no",
        "compiled in s": f"{one.found.get('compile_seconds', '-')}",
    }


def _step(name: str, one: Candidate, plan: Plan) -> dict[str, str]:
    del plan
    time, found = one.times, one.found
    sent = sum(Collective(*exchange).sent for exchange in found["collectives"])
    return {
        "": name,
        "TFLOP": f"{found['flops'] / 1e12:.2f}",
        "GB moved": f"{found['memory_bytes'] / 1e9:.1f}",
        "MB sent": f"{sent / 1e6:.1f}",
        "compute": f"{time.compute:.4f}",
        "memory": f"{time.memory:.4f}",
        "network": f"{time.network:.4f}",
        "step, at least": f"{time.step:.4f}",
        "bound by": time.bound,
    }


def _all_steps(plan: Plan) -> dict[str, str]:
    run, share = plan.run(), f"at {plan.efficiency:.0%} of that speed"
    costs = {"cost": f"{run['cost']:,.0f}"} if "cost" in run else {}
    return {
        "": f"{plan.model}, {plan.topology.name}",
        "steps": f"{plan.settings.num_train_steps:,}",
        "hours, at least": f"{run['hours_at_least']:,.1f}",
        f"hours {share}": f"{run['hours']:,.1f}",
        "chip-hours": f"{run['chip_hours']:,.0f}",
        **costs,
    }


def _exchanges(plan: Plan) -> str:
    """Returns what chips exchange in a step, in words."""
    found = [Collective(*one) for one in plan.best.found["collectives"]]
    words = (
        f"{one.kind} of {one.size / 1e6:.3f} MB among {one.group} chips, "
        f"{count_of(one.times, 'time')}"
        for one in found
    )
    return f"Exchanges in a step: {'; '.join(words) or 'none'}."


def _most(plan: Plan) -> str:
    """Returns about how many rows fit at once, in words."""
    words = ", ".join(f"{rows} with {form}" for form, rows in plan.most.items())
    return f"Rows that fit at once, about: {words}."


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a Markdown table whose columns are as wide in a terminal, too."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (n - 1) + ":" for n in widths[1:])])
    return "\n".join(
        "| "
        + " | ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )


def draw(plans: Sequence[Plan]) -> bytes:
    """Returns a PNG: memory and time of what `to_markdown` shows."""
    shown = [one for one in _shown(plans) if one[1].fits][::-1]
    figure = new_figure(10, 1.2 + 0.32 * len(shown), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(shown))
    ends = [0.0] * len(shown)
    for part in PARTS:
        sizes = [one.found[part] / GIB for _, one, _ in shown]
        if max(sizes) >= 0.01:
            left.barh(places, sizes, left=ends, label=part, height=0.6)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    rooms = [plan.topology.chip.memory_gib for _, _, plan in shown]
    left.plot(rooms, places, "k|", markersize=12, label="there is")
    left.set_yticks(places, [name for name, _, _ in shown])
    left.set(xlabel="memory of a chip, GiB")
    for index, kind in enumerate(("compute", "memory", "network")):
        seconds = [getattr(one.times, kind) for _, one, _ in shown]
        spots = [place + 0.22 * (1 - index) for place in places]
        right.barh(spots, seconds, height=0.2, label=kind)
    right.set(xlabel="seconds of a step, each alone")
    for axes in (left, right):
        axes.grid(alpha=0.3, axis="x")
        axes.legend(fontsize=8)
    return to_png(figure)
