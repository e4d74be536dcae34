"""The tasks of GLUE."""

from collections.abc import Sequence

from albert_tf.errors import UsageError
from albert_tf.tasks.metrics import classification_metrics, regression_metrics

# What the GLUE leaderboard reports for each task (https://gluebenchmark.com).
GLUE_METRICS = {
    "ax": ("matthews",),
    "cola": ("matthews",),
    "mnli": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "qnli": ("accuracy",),
    "qqp": ("accuracy", "f1"),
    "rte": ("accuracy",),
    "sst2": ("accuracy",),
    "stsb": ("pearson", "spearman"),
    "wnli": ("accuracy",),
}


def glue_metrics(
    task: str, labels: Sequence, predictions: Sequence
) -> dict[str, float]:
    """The metrics GLUE reports for a task.

    Args:
        task: A key of `GLUE_METRICS`; `"SST-2"`, `"STS-B"` are understood too.
        labels: int `[N]`; float `[N]` for STS-B.
        predictions: as labels.

    Raises:
        UsageError: If the task is unknown.
        DataError: See `classification_metrics`.
    """
    names = GLUE_METRICS.get(task.lower().replace("-", ""))
    if names is None:
        raise UsageError(f"task must be one of {list(GLUE_METRICS)}, received {task!r}")
    if "pearson" in names:
        values = regression_metrics(labels, predictions)
    else:
        average = "binary" if "f1" in names else "macro"
        values = classification_metrics(labels, predictions, average)
    return {name: values[name] for name in names}
