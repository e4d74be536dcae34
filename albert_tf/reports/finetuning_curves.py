"""The curves of a fine-tuning run as a picture."""

from collections.abc import Mapping, Sequence

from albert_tf.reports.figure import new_curves, to_png


def draw_curves(history: Sequence[Mapping[str, float]]) -> bytes:
    """Returns a PNG of loss and accuracy over the steps.

    Args:
        history: One line per epoch, with `step`, `loss` and `accuracy`, and
            `val_loss` and `val_accuracy` if there was a dev table.
    """
    figure, losses, accuracies = new_curves()
    steps = [line["step"] for line in history]
    for axes, kind in ((losses, "loss"), (accuracies, "accuracy")):
        for name, label in ((kind, "train"), (f"val_{kind}", "dev")):
            if name in history[0]:
                values = [line[name] for line in history]
                axes.plot(steps, values, "o-", label=label, markersize=3)
        axes.legend()
    return to_png(figure)
