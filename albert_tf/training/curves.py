"""Curves of a run as a picture."""

import io
import os
from collections.abc import Sequence
from typing import Any

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
