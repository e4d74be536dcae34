"""Which evaluation is the best one, and when a run stops."""

import math

import pytest

from albert_tf.training.callbacks import Selection


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
    assert better == [False, True, False] and selection.best_step == 2
    assert select([math.inf, 3.0], metric="loss")[1] == [False, True]


@pytest.mark.parametrize(("patience", "stops"), [(0, False), (1, True), (2, True)])
def test_patience(patience, stops):
    assert select([0.5, 0.4, 0.5], patience)[0].should_stop == stops
    assert not select([0.5, 0.4, 0.6], patience)[0].should_stop


def test_patience_ends_a_run_whose_metric_is_never_a_number():
    selection, better = select([math.nan, math.nan, math.nan], 2, "pearson")
    assert better == [False, False, False] and selection.should_stop
    assert selection.best_step is None and selection.has_no_number


def test_evaluations_on_record_decide_as_new_ones():
    lines = [{"step": s, "accuracy": v} for s, v in ((2, 0.5), (4, 0.4))]
    selection = Selection("accuracy", 2, lines)
    assert not selection.should_stop
    assert not selection.add(4, {"accuracy": 1.0})  # on record already
    assert not selection.add(6, {"accuracy": 0.5}) and selection.should_stop


def test_less_of_a_loss_is_better_whatever_stands_before_it():
    assert select([0.5, 0.3, 0.4], metric="ema_mlm_loss")[0].best_step == 2
    assert select([0.5, 0.3, 0.4], metric="mismatched_mse")[0].best_step == 2
    assert select([0.5, 0.3, 0.7], metric="mlm_accuracy")[0].best_step == 3
