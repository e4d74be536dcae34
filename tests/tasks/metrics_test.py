"""Task metrics against recorded values."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.tasks import metrics

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
        assert values[name] == (
            value if value is None else pytest.approx(value, rel=1e-12)
        ), name


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


def test_several_labels_per_example():
    labels = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0]], bool)
    predictions = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0]], bool)
    values = metrics.multi_label_metrics(labels, predictions)
    assert values == {
        "f1": pytest.approx(6 / 8),
        "precision": 0.75,
        "recall": 0.75,
        "f1_macro": pytest.approx((1 + 0 + 2 / 3) / 3),
        "exact_match": pytest.approx(1 / 3),
    }
    nothing = metrics.multi_label_metrics(labels & False, labels & False)
    assert nothing["f1"] == 0 and nothing["exact_match"] == 1


def test_a_single_label_is_a_binary_task():
    labels, predictions = np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0]], bool)[..., None]
    values = metrics.multi_label_metrics(labels, predictions)
    assert values["f1"] == values["f1_macro"] == values["precision"] == 0.5
    assert values["exact_match"] == 0.6
    (row,) = metrics.per_class(labels, predictions, ["x"])
    assert row["f1"] == 0.5 and row["support"] == 2


def test_three_classes_of_the_diagnostics():
    """Matthews correlation of several classes (Gorodkin's R_K), by hand."""
    labels, predictions = [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 0]
    values = metrics.classification_metrics(labels, predictions, "macro")
    # (c s - sum p t) / sqrt((s^2 - sum p^2)(s^2 - sum t^2)), c = 4, s = 6
    expected = (4 * 6 - (2 * 2 + 3 * 2 + 1 * 2)) / ((36 - 14) * (36 - 12)) ** 0.5
    assert values["matthews"] == pytest.approx(expected)


def test_every_class_has_a_row():
    rows = metrics.per_class(np.array([0, 0, 2]), np.array([0, 2, 2]), "xyz")
    assert [row["label"] for row in rows] == list("xyz")
    assert [row["support"] for row in rows] == [2, 0, 1]
    assert [row["precision"] for row in rows] == [1.0, 0.0, 0.5]
    assert [row["recall"] for row in rows] == [0.5, 0.0, 1.0]
    cells = np.array([[1, 0], [1, 1]], bool)
    assert [row["support"] for row in metrics.per_class(cells, cells, "ab")] == [2, 1]


def test_outputs_that_are_not_numbers_or_hardly_vary():
    values = metrics.regression_metrics([1.0, 2.0], [math.nan, 1.0])
    assert all(math.isnan(value) for value in values.values())
    one = metrics.regression_metrics([1.0], [2.0])
    assert one["mse"] == 1.0 and math.isnan(one["pearson"])
    assert metrics.regression_metrics([1.0, 2.0, 4.0], [1e9, 1e9 + 1e-6, 1e9])["mse"]


def test_sigmoid_of_large_logits():
    values = metrics.sigmoid(np.array([-1000.0, 0.0, np.log(3.0), 1000.0]))
    np.testing.assert_allclose(values, [0, 0.5, 0.75, 1])


def test_softmax_of_large_logits():
    values = metrics.softmax(np.array([[1000.0, 1000.0], [0.0, np.log(3.0)]]))
    np.testing.assert_allclose(values, [[0.5, 0.5], [0.25, 0.75]])


def test_import_does_not_need_the_scientific_packages():
    program = (
        "import sys; sys.modules.update(sklearn=None, scipy=None); "
        "import numpy, albert_tf.tasks.metrics as m; "
        "print(m.softmax(numpy.zeros((1, 2)))[0, 0])"
    )
    root = str(pathlib.Path(__file__).parents[2])
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True
    )
    assert process.stdout.strip() == "0.5", process.stderr[-2000:]
