"""Shows plans as tables, as a picture and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.environment import versions
from albert_tf.errors import count_of
from albert_tf.figure import new_figure, to_png
from albert_tf.planning.plan import GIB, PARTS, Candidate, Plan
from albert_tf.planning.roofline import assumptions, collectives_of
from albert_tf.planning.topologies import GpuMachine

_SHOWN = ("train_batch_size", "max_seq_length", "num_predictions", "objective")
_SHOWN += ("optimizer", "precision", "num_train_steps", "shard_optimizer")


def to_json(plans: Sequence[Plan]) -> dict[str, Any]:
    """Returns all numbers of plans; only `compile_seconds` differs between runs."""
    return {
        "plans": [_to_json(plan) for plan in plans],
        "assumptions": assumptions(plan.topology for plan in plans),
        "versions": _versions(plans),
    }


def _versions(plans: Sequence[Plan]) -> dict[str, str | None]:
    """Returns the versions of the packages that made the plans."""
    are_gpus = {isinstance(plan.topology, GpuMachine) for plan in plans}
    used = [("libtpu", "jax-cuda12-pjrt")[one] for one in sorted(are_gpus)]
    return versions(("jax", *used, "keras", "albert_tf"))


def _to_json(plan: Plan) -> dict[str, Any]:
    about = {"model": plan.model, "topology": plan.topology.name}
    about |= {"chips": plan.topology.num_chips, "shape": plan.topology.shape}
    about |= {"devices": plan.topology.num_devices}
    about |= {"chip": plan.topology.chip._asdict()}
    about |= {name: getattr(plan.settings, name) for name in _SHOWN}
    tried = []
    for one in plan.candidates:
        row = {"depth": one.depth, "rows_at_once": one.rows}
        row |= {"gradient_accumulation_steps": one.accumulation, "fits": one.fits}
        if time := one.times:
            rest = {"step": time.step, "bound": time.bound}
            row |= {"best": one is plan.best, "seconds": time._asdict() | rest}
        tried.append(row | one.found)
    most = {"most_rows_at_once": plan.most, "efficiency": plan.efficiency}
    return {**about, "candidates": tried, **most, **plan.run()}


def to_markdown(plans: Sequence[Plan]) -> str:
    """Returns tables of all candidates of one plan, or of the best of several plans."""
    shown = _shown(plans)
    parts = [
        _list(map(_introduction, plans)),
        "Memory of a device in GiB:",
        _table([_memory(*one) for one in shown]),
        "A step of a device; seconds as if nothing else took any:",
        _table([_step(name, one) for name, one, _ in shown if one.fits]),
        *_traffic([(name, one) for name, one, _ in shown if one.fits]),
        "All steps, with the best of them:",
        _table([_all_steps(plan) for plan in plans]),
        *(_details(plans[0]) if len(plans) == 1 else []),
        "Assumed:",
        _list(assumptions(plan.topology for plan in plans)),
    ]
    used = {k: v for k, v in _versions(plans).items() if v}
    compiled_with = ", ".join(f"{k} {v}" for k, v in used.items())
    return "\n\n".join([*parts, f"Compiled without a device: {compiled_with}."]) + "\n"


def _shown(plans: Sequence[Plan]) -> list[tuple[str, Candidate, Plan]]:
    """Returns the named candidates that tables and picture show."""
    if len(plans) > 1:
        return [(f"{p.model}, {p.topology.name}", p.best, p) for p in plans]
    best, marks = plans[0].best, {True: " (best)", False: ""}
    return [
        (f"{one.depth}, {one.rows}{marks[one is best]}", one, plans[0])
        for one in plans[0].candidates
    ]


def _introduction(plan: Plan) -> str:
    settings, topology, chip = plan.settings, plan.topology, plan.topology.chip
    rows, devices = settings.train_batch_size, topology.num_devices
    return (
        f"{plan.model} on {topology.name}: {count_of(topology.num_chips, 'chip')} "
        f"({topology.shape}), {count_of(devices, 'device')} with "
        f"{chip.memory_gib} GiB, {chip.teraflops} TFLOP/s, "
        f"{chip.memory_rate:,} GB/s to their memory and {topology.network_rate:g} GB/s "
        f"to each other; {count_of(rows, 'row')} of {settings.max_seq_length} tokens, "
        f"{rows // devices} per device; {settings.objective}, {settings.optimizer}, "
        f"{settings.precision}"
    )


def _memory(name: str, one: Candidate, plan: Plan) -> dict[str, str]:
    cells = {"": name, "depth": one.depth, "rows at once": str(one.rows)}
    cells["micro-batches"] = str(one.accumulation)
    for part in PARTS:
        cells[part] = f"{one.found[part] / GIB:.2f}" if one.fits else "-"
    cells |= {"all": f"{one.total / GIB:.2f}", "of": f"{plan.topology.chip.memory_gib}"}
    cells["fits"] = "yes" if one.fits else "no"
    return cells | {"compiled in s": f"{one.found.get('compile_seconds', '-')}"}


def _step(name: str, one: Candidate) -> dict[str, str]:
    cells = {"": name, "TFLOP": f"{one.found['flops'] / 1e12:.2f}"}
    cells["GB moved"] = f"{one.found['memory_bytes'] / 1e9:.1f}"
    sent = sum(exchange.sent for exchange in collectives_of(one.found))
    cells["MB sent"] = f"{sent / 1e6:.1f}"
    cells |= {kind: f"{value:.4f}" for kind, value in one.times._asdict().items()}
    return cells | {"step": f"{one.times.step:.4f}", "bound by": one.times.bound}


def _traffic(shown: Sequence[tuple[str, Candidate]]) -> list[str]:
    """Returns a table of the data that is moved in a step, by kind of work."""
    kinds = {kind: 0 for _, one in shown for kind in one.found.get("kinds", ())}
    if not kinds:
        return []
    rows = []
    for name, one in shown:
        found = {kind: one.found["kinds"].get(kind, (0, 0)) for kind in kinds}
        cells = {kind: f"{size / 1e9:.1f} ({n})" for kind, (n, size) in found.items()}
        rows.append({"": name, **cells})
    return ["GB moved by kind of work (number of kernels):", _table(rows)]


def _all_steps(plan: Plan) -> dict[str, str]:
    run, model = plan.run(), f"{plan.model}, {plan.topology.name}"
    cells = {"": model, "steps": f"{plan.settings.num_train_steps:,}"}
    cells["hours at least"] = f"{run['hours_at_least']:,.1f}"
    cells[f"hours at {plan.efficiency:.0%} of that speed"] = f"{run['hours']:,.1f}"
    cells["chip-hours"] = f"{run['chip_hours']:,.1f}"
    return cells | ({"cost": f"{run['cost']:,.2f}"} if "cost" in run else {})


def _details(plan: Plan) -> list[str]:
    exchanges = "; ".join(
        f"{one.kind} of {one.size / 1e6:.3f} MB among {one.group} devices, "
        f"{count_of(one.times, 'time')}"
        for one in collectives_of(plan.best.found)
    )
    most = ", ".join(f"{rows} with {form}" for form, rows in plan.most.items())
    devices = "mirrored" if isinstance(plan.topology, GpuMachine) else "tpu"
    flags = f"--distribution={devices} --precision={plan.settings.precision} "
    flags += f"--depth={plan.best.depth} "
    flags += f"--gradient_accumulation_steps={plan.best.accumulation}"
    return [
        f"The fastest that fits is `pretrain --backend=jax {flags}`.",
        f"Exchanges in a step: {exchanges or 'none'}.",
        f"Most rows at once that were found to fit: {most}.",
    ]


def _list(texts) -> str:
    return "\n".join(f"* {text}" for text in texts)


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a Markdown table whose columns are also aligned in a terminal."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = [
        [cell.rjust(n) if i else cell.ljust(n) for i, (cell, n) in enumerate(pairs)]
        for pairs in (zip(line, widths, strict=True) for line in lines)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def draw(plans: Sequence[Plan]) -> bytes:
    """Returns a PNG with memory and time of the rows of `to_markdown`."""
    shown = [one for one in _shown(plans) if one[1].fits][::-1]
    figure = new_figure(10, 1.2 + 0.32 * len(shown), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places, ends = range(len(shown)), [0.0] * len(shown)
    for part in PARTS:
        sizes = [
            one.found[part] / GIB / plan.topology.chip.memory_gib
            for _, one, plan in shown
        ]
        if max(sizes) >= 0.001:
            left.barh(places, sizes, left=ends, label=part, height=0.6)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    left.set_xlim(0, 1)
    left.set_yticks(places, [name for name, _, _ in shown])
    for index, kind in enumerate(("compute", "memory", "network", "passes")):
        times = [1000 * getattr(one.times, kind) for _, one, _ in shown]
        spots = [place + 0.2 * (1.5 - index) for place in places]
        if any(times):
            right.barh(spots, times, height=0.2, label=kind)
    # Few ticks without an exponent, so that neither overlaps its neighbour.
    right.locator_params(axis="x", nbins=6)
    right.ticklabel_format(axis="x", style="plain")
    titles = "share of a device's memory", "milliseconds of a step, each alone"
    for axes, title in zip((left, right), titles, strict=True):
        axes.set_xlabel(title)
        axes.grid(alpha=0.3, axis="x")
        axes.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    return to_png(figure)
