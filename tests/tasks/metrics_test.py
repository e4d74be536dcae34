"""Task metrics against recorded values."""

import json
import math

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.tasks import metrics
from tests.tiny import GOLDEN

CASES = json.loads((GOLDEN / "squad/glue_metrics.json").read_text())
CLASSES = [(CASES["binary"], ["binary"])]
CLASSES += [(CASES["multiclass"], ["macro", "micro", "weighted"])]
SCORES = [CASES["regression"], CASES["regression_with_ties"]]
for case in CASES["degenerate"]:
    if "mse" in case["expected"]:
        SCORES.append(case)
    else:
        CLASSES.append((case, ["binary"]))

pytestmark = pytest.mark.filterwarnings("error")


def assert_holds(values, expected):
    """Compares with recorded values, where null is nan."""
    assert expected
    for name, value in expected.items():
        wanted = math.nan if value is None else value
        assert values[name] == pytest.approx(wanted, rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize(("case", "averages"), CLASSES)
def test_classes(case, averages):
    values = {}
    for average in averages:
        found = metrics.classification_metrics(
            case["labels"], case["predictions"], average
        )
        values |= found | {f"f1_{average}": found["f1"]}
    assert_holds(values | {"f1": values["f1_" + averages[0]]}, case["expected"])


@pytest.mark.parametrize("case", SCORES)
def test_scores(case):
    values = metrics.regression_metrics(case["labels"], case["predictions"])
    assert_holds(values, case["expected"])
    mean = (values["pearson"] + values["spearman"]) / 2
    assert values["pearson_spearman"] == pytest.approx(mean, nan_ok=True)


def test_several_labels_per_example():
    labels = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0]], bool)
    predictions = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 0]], bool)
    assert metrics.multi_label_metrics(labels, predictions) == {
        "f1": pytest.approx(6 / 8),
        "precision": 0.75,
        "recall": 0.75,
        "f1_macro": pytest.approx((1 + 0 + 2 / 3) / 3),
        "exact_match": pytest.approx(1 / 3),
    }
    nothing = metrics.multi_label_metrics(labels & False, labels & False)
    assert nothing["f1"] == 0 and nothing["exact_match"] == 1
    # A single label is a binary task.
    one = metrics.multi_label_metrics(labels[:, 2:], predictions[:, 2:])
    assert one["f1"] == one["f1_macro"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("labels", "predictions"), [([], []), ([0, 1], [1])])
def test_other_lengths(labels, predictions):
    for compute in (
        metrics.classification_metrics,
        metrics.multi_label_metrics,
        metrics.regression_metrics,
        lambda *both: metrics.per_class(*both, ["a", "b"]),
    ):
        with pytest.raises(DataError, match="as many of one as of the other"):
            compute(labels, predictions)


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


def test_probabilities_of_large_logits():
    values = metrics.sigmoid(np.array([-1000.0, 0.0, np.log(3.0), 1000.0]))
    np.testing.assert_allclose(values, [0, 0.5, 0.75, 1])
    values = metrics.softmax(np.array([[1000.0, 1000.0], [0.0, np.log(3.0)]]))
    np.testing.assert_allclose(values, [[0.5, 0.5], [0.25, 0.75]])
