"""The curves of a pretraining run as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.objectives.objective import Term
from albert_tf.reports.figure import new_curves, to_png


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
    for split, style in (("train", "-"), ("eval", "o--")):
        lines = [line for line in metrics if line["split"] == split]
        if not lines:
            continue
        steps, last = [line["step"] for line in lines], lines[-1]
        for axes, kind in ((losses, "loss"), (accuracies, "accuracy")):
            for term in terms:
                name = f"{term.name}_{kind}"
                if name in last:
                    values = [line[name] for line in lines]
                    look = {"color": term.color, "markersize": 3, "lw": 1}
                    label = f"{term.title} {split}"
                    axes.plot(steps, values, style, label=label, **look)
        for term in terms:
            if f"{term.name}_baseline" in last:
                accuracies.axhline(
                    last[f"{term.name}_baseline"],
                    color=term.color,
                    linestyle=":",
                    label=f"{term.title} trivial baseline",
                )
    accuracies.set_ylim(0, 1)
    for axes in (losses, accuracies):
        axes.legend(fontsize=8)
    return to_png(figure)
