"""Curves of a run as a picture."""

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.storage import files


def draw_pretraining_curves(
    metrics: Sequence[dict[str, Any]], path: str | os.PathLike
) -> None:
    """Draws losses and accuracies over the steps.

    Args:
        metrics: Lines of `metrics.jsonl`; those with `split` "eval" were measured on
            held-out data and may carry `mlm_baseline` and `sop_baseline`.
        path: Of the PNG.
    """
    # Without pyplot, whose state is global and which looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, accuracies = figure.subplots(1, 2)
    for split, style in (("train", "-"), ("eval", "o--")):
        lines = [m for m in metrics if m["split"] == split]
        if not lines:
            continue
        steps = [m["step"] for m in lines]
        for axes, kind in ((losses, "loss"), (accuracies, "accuracy")):
            for part, color in (("mlm", "tab:blue"), ("sop", "tab:orange")):
                if f"{part}_{kind}" not in lines[-1]:
                    continue  # masked LM alone
                values = [m[f"{part}_{kind}"] for m in lines]
                label = f"{part.upper()} {split}"
                axes.plot(
                    steps, values, style, color=color, label=label, markersize=3, lw=1
                )
        last = lines[-1]
        for part, color in (("mlm", "tab:blue"), ("sop", "tab:orange")):
            if f"{part}_baseline" in last:
                accuracies.axhline(
                    last[f"{part}_baseline"],
                    color=color,
                    linestyle=":",
                    label=f"{part.upper()} trivial baseline",
                )
    losses.set_ylabel("loss (nats)")
    accuracies.set_ylabel("accuracy")
    accuracies.set_ylim(0, 1)
    for axes in (losses, accuracies):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    buffer = io.BytesIO()
    # Without the version of matplotlib inside: same numbers, same bytes.
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    files.write_bytes(path, buffer.getvalue())


def draw_curves(history: list[dict[str, float]]) -> bytes:
    """Loss and accuracy of both tables over the steps, as a PNG."""
    # Without pyplot, whose state is global and which looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    steps = [line["step"] for line in history]
    for axes, kind in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for name, label in ((kind, "train"), (f"val_{kind}", "dev")):
            if name in history[0]:
                values = [line[name] for line in history]
                axes.plot(steps, values, "o-", label=label, markersize=3)
        axes.set_xlabel("step")
        axes.set_ylabel("loss (nats)" if kind == "loss" else kind)
        axes.grid(alpha=0.3)
        axes.legend()
    buffer = io.BytesIO()
    # Without the version of matplotlib inside: same numbers, same bytes.
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()


def draw_lengths(lengths: np.ndarray) -> bytes:
    """A PNG of how many examples have each length.

    Args:
        lengths: int `[S + 1]`, examples of length 0, 1, ... S.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = len(lengths) - 1
    figure = Figure(figsize=(6, 3))
    FigureCanvasAgg(figure)
    # Margins that hold the labels; to have them computed takes half a second.
    axes = figure.add_axes((0.13, 0.17, 0.84, 0.78))
    axes.hist(np.arange(size + 1), bins=min(size, 64), range=(1, size), weights=lengths)
    axes.set_yscale("log" if lengths.max() > 50 else "linear")
    axes.set(xlabel="tokens of an example", ylabel="examples")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
