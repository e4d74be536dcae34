"""What a classifier with exits answers after each layer, as a picture."""

from collections.abc import Mapping
from typing import Any

from albert_tf.reports.figure import new_figure, to_png

_STYLES = {"layers": "o-", "entropy": "s--", "patience": "^:"}
_TITLES = {
    "layers": "the same for all texts",
    "entropy": "by entropy",
    "patience": "by patience",
}


def draw_exits(measured: Mapping[str, Any]) -> bytes:
    """Returns a PNG of the metric against the layers, and against the time.

    Args:
        measured: dict. What `inference.exit_curve.measure_exits` returned.
    """
    name = measured["metric"]
    figure = new_figure(10, 4, layout="constrained")
    by_layers, by_time = figure.subplots(1, 2, sharey=True)
    for kind, style in _STYLES.items():
        points = [p for p in measured["points"] if p["exit"].startswith(f"{kind}:")]
        for axes, x in ((by_layers, "mean_layers"), (by_time, "time")):
            points.sort(key=lambda point, x=x: point[x])
            if points:
                axes.plot(
                    [point[x] for point in points],
                    [point[name] for point in points],
                    style,
                    label=_TITLES[kind],
                )
    for axes in (by_layers, by_time):
        axes.axhline(measured["full"][name], color="gray", lw=1, label="whole model")
        axes.grid(alpha=0.3)
    by_layers.set(xlabel="mean number of layers", ylabel=name.replace("_", " "))
    by_time.set(xlabel="time, as a share of the whole model's")
    by_layers.legend()
    return to_png(figure)
