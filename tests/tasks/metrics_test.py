"""Masked sums against numpy; task metrics against recorded values."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import glue, metrics

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/squad/glue_metrics.json"
CASES = json.loads(GOLDEN.read_text())

pytestmark = pytest.mark.filterwarnings("error")


def as_golden(values, average="binary"):
    """Our names to the recorded ones; nan to None."""
    named = {f"f1_{average}" if k == "f1" else k: v for k, v in values.items()}
    return {k: None if math.isnan(v) else v for k, v in named.items()}


def assert_holds(values, expected):
    assert expected
    for name, value in expected.items():
        assert values[name] == (value if value is None else pytest.approx(value)), name


def test_binary():
    case = CASES["binary"]
    values = metrics.classification_metrics(case["labels"], case["predictions"])
    assert_holds(as_golden(values), case["expected"])


def test_multiclass():
    case = CASES["multiclass"]
    values = {}
    for average in ("macro", "micro", "weighted"):
        found = metrics.classification_metrics(
            case["labels"], case["predictions"], average
        )
        values.update(as_golden(found, average))
    assert_holds(values, case["expected"])


@pytest.mark.parametrize("name", ["regression", "regression_with_ties"])
def test_regression(name):
    case = CASES[name]
    values = metrics.regression_metrics(case["labels"], case["predictions"])
    assert_holds(as_golden(values), case["expected"])
    assert values["pearson_spearman"] == pytest.approx(
        (case["expected"]["pearson"] + case["expected"]["spearman"]) / 2
    )


@pytest.mark.parametrize("case", CASES["degenerate"])
def test_degenerate(case):
    task = "regression" if "mse" in case["expected"] else "classification"
    function = getattr(metrics, f"{task}_metrics")
    values = function(case["labels"], case["predictions"])
    assert_holds(as_golden(values), case["expected"])


def test_one_example():
    values = metrics.regression_metrics([1.0], [2.0])
    assert values["mse"] == 1.0
    assert math.isnan(values["pearson"]) and math.isnan(values["spearman"])


def test_glue_tasks():
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 0, 0, 1]
    for task, names in glue.GLUE_METRICS.items():
        assert set(glue.glue_metrics(task, labels, predictions)) == set(names)
    assert glue.glue_metrics("SST-2", labels, predictions) == {"accuracy": 0.8}
    assert glue.glue_metrics("mnli", [0, 1, 2, 2], [0, 1, 2, 1])["accuracy"] == 0.75
    with pytest.raises(UsageError, match="received 'squad'"):
        glue.glue_metrics("squad", labels, predictions)


@pytest.mark.parametrize(
    ("labels", "predictions"), [([], []), ([1], [1, 0]), ([[1]], [[1]])]
)
def test_bad_shapes_are_named(labels, predictions):
    for function in (metrics.classification_metrics, metrics.regression_metrics):
        with pytest.raises(DataError, match="received shapes"):
            function(labels, predictions)


def test_bad_classes_and_averages_are_named():
    with pytest.raises(DataError, match=r"found \[0, 1, 2\]"):
        metrics.classification_metrics([0, 1, 2], [0, 1, 1])
    with pytest.raises(UsageError, match="received 'mean'"):
        metrics.classification_metrics([0, 1], [0, 1], "mean")


def test_masked_metrics_equal_numpy():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(3, 7, 11)).astype("float32")
    labels = rng.integers(0, 11, (3, 7))
    weights = (rng.random((3, 7)) < 0.6).astype("float32")
    ranks = (-logits).argsort(-1).argsort(-1)
    rank = np.take_along_axis(ranks, labels[..., None], -1)[..., 0]
    total, count = metrics.masked_accuracy(logits, labels, weights)
    assert float(total) == ((rank == 0) * weights).sum()
    assert float(count) == weights.sum()
    for k in (1, 5, 11, 20):
        total, count = metrics.masked_top_k_accuracy(logits, labels, weights, k)
        assert float(total) == ((rank < k) * weights).sum()
        assert float(count) == weights.sum()
    total, count = metrics.masked_accuracy(logits, labels)
    assert (float(total), float(count)) == ((rank == 0).sum(), 21)
    with pytest.raises(UsageError, match="received 0"):
        metrics.masked_top_k_accuracy(logits, labels, k=0)


def test_values_that_do_not_count_may_be_nan():
    total, count = metrics.masked_sum(np.array([2.0, np.nan]), np.array([0.5, 0.0]))
    assert (float(total), float(count)) == (1.0, 0.5)


def test_streaming_means_weigh_batches_by_their_counts():
    means = metrics.StreamingMeans()
    means.update({"a": (3.0, 4.0), "b": metrics.masked_sum(np.ones(3), np.zeros(3))})
    means.update({"a": (np.float32(1.0), 1)})
    result = means.result()
    assert result["a"] == 0.8
    assert math.isnan(result["b"])
    means.reset()
    assert means.result() == {}


def test_import_does_not_need_the_scientific_packages():
    program = (
        "import sys; sys.modules.update(sklearn=None, scipy=None); "
        "import albert_tf.metrics as m; print(float(m.masked_sum([1.0])[0]))"
    )
    root = str(pathlib.Path(__file__).parents[2])
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True
    )
    assert process.stdout.strip() == "1.0", process.stderr[-2000:]
