"""Makes the page of the results of `benchmarks.gpu`, also from its JSON."""

import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.cases import EAGER, FUSED, GRADIENT, OUTPUT
from benchmarks.objectives_report import to_table
from benchmarks.report import Report, Row

OURS = "albert_tf"
EVERYWHERE = ", every token scored"
OURS_EVERYWHERE = OURS + EVERYWHERE
THEIRS = "transformers, torch.compile"
THEIRS_MASKED = "transformers, torch.compile, with a mask"
THEIRS_PADDED = "transformers, torch.compile, padded"
PRODUCT = "a product of 8192 x 8192 matrices"
# Peaks of the matrix units in dense bfloat16, TFLOP/s, from NVIDIA's data sheets; the
# first name that is a prefix of a device's name applies.
_PEAKS = {
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100": 989,
    "NVIDIA H200": 989,
    "NVIDIA A100": 312,
    "NVIDIA L4": 121,
}
# Aims, those of utilisation on an H100.
_MOST_USED = {"base": 0.41, "large": 0.45, "xlarge": 0.57, "xxlarge": 0.62}
_FASTER = 1.2
# Values of SDPA on transformers' page of ALBERT: % faster, % more memory without it.
_PUBLISHED = {
    GRADIENT: {
        "2 x 256": (14.388, 11.624),
        "2 x 512": (17.681, 25.022),
        "4 x 256": (12.246, 12.756),
        "4 x 512": (18.472, 26.512),
        "8 x 256": (12.664, 13.198),
        "8 x 512": (18.957, 27.062),
    },
    OUTPUT: {
        "4 x 128": (16.967, -0.268),
        "4 x 256": (16.370, -0.817),
        "4 x 512": (25.473, 16.693),
        "8 x 128": (11.102, -0.409),
        "8 x 256": (17.271, -1.132),
        "8 x 512": (25.470, 22.021),
        "16 x 128": (12.506, -0.567),
        "16 x 256": (17.604, -1.388),
        "16 x 512": (25.365, 24.784),
    },
}
_TITLES = {
    "sizes": "Steps of pretraining",
    GRADIENT: "Attention in training",
    OUTPUT: "Attention in inference",
    "packed": "Rows of real lengths",
    "depth": "Forms of the depth",
}
_NOTES = (
    "* step: median of the turns. A turn is at least ten steps, and as many as take "
    "25 ms, and ends when the device has finished. The first step includes tracing and "
    "compilation.",
    "* of the peak: model FLOPs over the peak of the matrix units. Model FLOPs count "
    "the encoder's matrix products in a forward pass (a block's parameters once for "
    "each of its applications) and both products of the attention, times three for "
    "training. Heads, activations, recomputation and padding are not counted, and an "
    "example in a packed row attends only to itself.",
    "* Work: transformers scores the vocabulary at every token, albert_tf only at the "
    "tokens to be predicted, a sixth; 'every token scored' works like transformers. "
    "Both train with AdamW, clipped gradients and bfloat16 over float32 weights. Full "
    "rows are given to transformers without a mask and with one that masks nothing; "
    "the comparison uses the faster one.",
    "* peak memory: the most that a process has allocated on the device until then: "
    "it is cumulative, so a case that follows a larger one of the same process shows "
    "the larger number. For the forms of the depth and the attention, it is the sum "
    "of arguments, results and temporaries of the compiled XLA program.",
    "* Attention: forward and backward pass, or forward pass alone, of the encoder of "
    "albert_base, with a mask. The columns show milliseconds and MiB of two products "
    "and a softmax / of the fused kernel, and how many % more the former needs, "
    "relative to the latter, as on transformers' page. transformers is not compiled "
    "here and has weights in bfloat16; on its page they were float16. Published: its "
    "section 'Using SDPA', from an NVIDIA GeForce RTX 2060 with PyTorch 2.3.1.",
)
Found = Mapping[str, Any]


def to_report(found: Sequence[Found], device: str) -> Report:
    """Returns the report.

    Args:
        found: list of dict. As `gpu.run` collects them.
        device: str. The kind of device.
    """
    peak = peak_of(device)
    rows: list[Row] = []
    parts: dict[str, list[str]] = {}
    for (part, title), some in itertools.groupby(
        found, lambda one: (one["part"], one["title"])
    ):
        group = [one for one in some if "failed" not in one]
        lines = parts.setdefault(title if part == "table" else part, [])
        if part == "table":
            more, table = _attention(title, group)
            lines += table
        elif group:
            more, table = _steps(part, title, group, peak)
            lines += [f"**{title}**", "", *table, ""]
        rows += more if group else []
    lines = [
        f"* {one['title']}, {one['name']}: {one['failed']}"
        for one in found
        if "failed" in one
    ]
    flags = os.environ.get("XLA_FLAGS", "")
    text = [f"Device: {device}; peak {peak or 'unknown'} TFLOP/s in bfloat16."]
    text += [f"XLA_FLAGS: `{flags}`.", ""] if flags else [""]
    for part, table in parts.items():
        text += [f"## {_TITLES[part]}", "", *table, ""]
    text += ["Not measured:", "", *lines, ""] if lines else []
    series = {"device": device, "XLA_FLAGS": flags, "measured": list(found)}
    title = "Benchmark of a step on a GPU, bfloat16"
    return Report(title, rows, series, notes=_NOTES, text="\n".join(text).rstrip())


def peak_of(device: str) -> float | None:
    """Returns the peak of a kind of device in TFLOP/s; None if it is not known."""
    return next((p for name, p in _PEAKS.items() if device.startswith(name)), None)


def _seconds(one: Found) -> float:
    return statistics.median(one["seconds"])


def _steps(
    part: str, title: str, group: Sequence[Found], peak: float | None
) -> tuple[list[Row], list[str]]:
    """Returns rows with aims, and a table, of cases that train on the same data."""
    rows, table = [], {}
    size = title.partition(",")[0]
    for one in group:
        name, seconds = one["name"], _seconds(one)
        speed = one["flops"] / seconds / 1e12
        used = speed / peak if peak else None
        # The peak of a process is due to its largest case so far.
        kinds = ("program", "memory") if part == "depth" else ("memory", "program")
        memory = next((one[kind] for kind in kinds if kind in one), None)
        table[name] = {
            "step": f"{1e3 * seconds:,.1f} ms",
            "tokens/s": f"{one['tokens'] / seconds:,.0f}" if "tokens" in one else "-",
            "TFLOP/s": f"{speed:,.0f}",
            "of the peak": f"{used:.1%}" if used else "-",
            "peak memory": _gigabytes(memory if "tokens" in one else None),
            "first step": f"{one['first']:.1f} s",
        }
        if used and name == OURS and part == "sizes":
            aim = f"at least {_MOST_USED[size]}" if size in _MOST_USED else ""
            rows.append(Row(f"{title}: share of the peak", used, "", aim))
    lines = to_table(table)
    speeds = {o["name"]: o["tokens"] / _seconds(o) for o in group if "tokens" in o}
    peers = [name for name in speeds if name.startswith(THEIRS)]
    if peers:
        lines.append("")
        theirs = max(peers, key=speeds.__getitem__)
        other = speeds[theirs]
        for name, speed in speeds.items():
            if name in peers:
                continue
            aim = f"at least {_FASTER}" if name.endswith(EVERYWHERE) else ""
            what = f"{title}: {name} / {theirs}, tokens/s"
            rows.append(Row(what, speed / other, "", aim))
            lines.append(f"* {name}: {speed / other:.2f} times that of {theirs}.")
    return rows, lines


def _attention(work: str, group: Sequence[Found]) -> tuple[list[Row], list[str]]:
    """Returns rows with aims, and the table of transformers' page, ours and theirs."""
    named: dict[str, dict[str, Found]] = {}
    for one in group:
        shape, _, name = one["name"].partition(": ")
        named.setdefault(shape, {})[name] = one
    rows, table = [], {}
    for shape, cases in named.items():
        cells, published = {}, _PUBLISHED[work].get(shape, (0.0, 0.0))
        engines = dict.fromkeys(name.partition(",")[0] for name in cases)
        for engine in engines:
            pair = [cases.get(f"{engine}, {form}") for form in (EAGER, FUSED)]
            if None in pair:
                continue
            faster, times = _gain(*map(_seconds, pair))
            sizes = [one.get("program", one.get("memory", 0)) for one in pair]
            saved, _ = _gain(*sizes) if all(sizes) else (0.0, "")
            label = OURS if engine == "jax" else engine
            cells[f"{label}: {EAGER} / {FUSED}"] = " / ".join(
                f"{1e3 * one:.2f}" for one in times
            )
            cells[f"{label}: faster"] = f"{faster:+.1f}%"
            cells[f"{label}: MiB"] = " / ".join(f"{s / 2**20:,.0f}" for s in sizes)
            cells[f"{label}: saved"] = f"{saved:+.1f}%"
            if engine == "jax":
                aim = f"more than {published[0]:.1f}"
                what = f"{work}, {shape}: {FUSED} is faster by"
                rows.append(Row(what, faster, "%", aim))
        cells["published: faster, saved"] = "{:+.1f}%, {:+.1f}%".format(*published)
        table[shape] = cells
    return rows, to_table(table) if table else []


def _gain(eager: float, fused: float) -> tuple[float, tuple[float, float]]:
    """Returns the excess of the other form over the fused one in %, and both values."""
    return 100 * (eager / fused - 1), (eager, fused)


def _gigabytes(count: float | None) -> str:
    return f"{count / 2**30:.2f} GiB" if count else "-"
