"""The curves of a pretraining run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.objectives.objective import Term
from albert_tf.reports.figure import PAGE_DPI, new_curves, new_plot, to_png
from albert_tf.reports.page import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_pretraining_curves(
    metrics: Sequence[Mapping[str, Any]], terms: Sequence[Term]
) -> bytes:
    """Returns a PNG of losses and accuracies over the steps.

    Args:
        metrics: Lines of `metrics.jsonl`. Those whose `split` is "eval" were measured
            on held-out data and may hold the baselines of the terms.
        terms: Terms of the objective. Those that were not measured are left out.
    """
    figure, losses, accuracies = new_curves()
    _plot(losses, metrics, terms, "loss")
    _plot(accuracies, metrics, terms, "accuracy")
    return to_png(figure)


def page_curves(
    metrics: Sequence[Mapping[str, Any]], terms: Sequence[Term]
) -> list[Figure]:
    """Returns the same curves as figures of a page; none without metrics."""
    figures = []
    for kind, unit in (("loss", "loss (nats)"), ("accuracy", "accuracy")):
        last = {
            f"{line['split']} {term.title}": line[f"{term.name}_{kind}"]
            for line in metrics
            for term in terms
            if f"{term.name}_{kind}" in line
        }
        if last:
            figure, axes = new_plot("step", unit)
            _plot(axes, metrics, terms, kind)
            values = ", ".join(f"{name} {value:.4g}" for name, value in last.items())
            alt = f"{kind.capitalize()} over the steps. Last values: {values}."
            figures.append(Figure(to_png(figure, PAGE_DPI), alt))
    return figures


def _plot(
    axes: Axes, metrics: Sequence[Mapping[str, Any]], terms: Sequence[Term], kind: str
) -> None:
    for split, style in (("train", "-"), ("eval", "o--")):
        lines = [line for line in metrics if line["split"] == split]
        if not lines:
            continue
        last = lines[-1]
        for term in terms:
            name = f"{term.name}_{kind}"
            # Held-out data of another part of the run may lack the term.
            points = [(line["step"], line[name]) for line in lines if name in line]
            if points:
                look = {"color": term.color, "markersize": 3, "lw": 1}
                label = f"{term.title} {split}"
                axes.plot(*zip(*points, strict=True), style, label=label, **look)
        for term in terms:
            if kind == "accuracy" and f"{term.name}_baseline" in last:
                axes.axhline(
                    last[f"{term.name}_baseline"],
                    color=term.color,
                    linestyle=":",
                    label=f"{term.title} trivial baseline",
                )
    if kind == "accuracy":
        axes.set_ylim(0, 1)
    axes.legend(fontsize=8)
