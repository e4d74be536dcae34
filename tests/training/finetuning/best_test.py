"""Which weights are kept, and when a run stops."""

import math

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.training.finetuning.best import BestWeights, Selection
from tests.training.finetuning.runs import CONFIG


def select(values, patience=0, metric="accuracy"):
    selection = Selection(metric, patience)
    better = [selection.add(i + 1, {metric: v}) for i, v in enumerate(values)]
    return selection, better


def test_the_first_of_the_best_is_kept():
    selection, better = select([0.5, 0.7, 0.6, 0.7])
    assert better == [True, True, False, False]
    assert (selection.best_step, selection.best_value) == (2, 0.7)


def test_a_loss_is_better_when_it_is_lower():
    selection, _ = select([0.5, 0.3, 0.4], metric="mse")
    assert selection.best_step == 2


def test_not_a_number_is_worse_than_any_number():
    selection, better = select([math.nan, 0.1, math.nan])
    assert better == [True, True, False] and selection.best_step == 2


@pytest.mark.parametrize(("patience", "stops"), [(0, False), (1, True), (2, True)])
def test_patience(patience, stops):
    assert select([0.5, 0.4, 0.5], patience)[0].should_stop == stops
    assert not select([0.5, 0.4, 0.6], patience)[0].should_stop


def test_patience_ends_a_run_whose_metric_is_never_a_number():
    selection, better = select([math.nan, math.nan, math.nan], 2, "pearson")
    assert better == [True, False, False] and selection.should_stop


def test_evaluations_on_record_decide_as_new_ones():
    lines = [{"step": s, "accuracy": v} for s, v in ((2, 0.5), (4, 0.4))]
    selection = Selection("accuracy", 2, lines)
    assert not selection.should_stop
    assert not selection.add(4, {"accuracy": 1.0})  # on record already
    assert not selection.add(6, {"accuracy": 0.5}) and selection.should_stop


def test_weights_come_back(tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    best = BestWeights(str(tmp_path / "best"), model)
    best.save(3)
    values = {n: np.array(v) for n, v in weight_names(model).items()}
    for variable in model.weights:
        if variable.dtype == "float32":
            variable.assign(variable + 1)
    best.save(5)
    best.restore(3)
    for name, variable in weight_names(model).items():
        np.testing.assert_array_equal(variable, values[name])
    best.keep_only(5)
    assert [path.name for path in (tmp_path / "best").iterdir()] == [
        "step-5.safetensors"
    ]
    with pytest.raises(DataError, match="step-3.safetensors: .* are missing"):
        best.restore(3)
