"""What counts as a divergence."""

import math

from albert_tf.training.callbacks import DivergedError, DivergenceGuard


def lines(*losses, norm=1.0):
    return [{"split": "train", "loss": x, "grad_norm": norm} for x in losses]


def find(guard, losses, norms=None, done=10):
    try:
        guard.on_step(done, losses, norms or [1.0] * len(losses), 0.1)
    except DivergedError as e:
        return e
    return None


def test_numbers_must_be_finite_from_the_first_step():
    guard = DivergenceGuard()
    assert find(guard, [1e9, 3.0]) is None
    for bad in (math.nan, math.inf, -math.inf):
        assert find(guard, [3.0, bad, bad]).step == 12
        error = find(guard, [3.0, 3.0], [bad, 1.0])
        assert error.step == 11 and "gradient norm" in str(error)
        assert set(error.values) == {"loss", "grad_norm"}


def test_the_usual_is_a_median_of_at_least_three_lines():
    ratios = {"max_loss_ratio": 2.0, "max_norm_ratio": 5.0}
    assert find(DivergenceGuard(lines(1, 1), **ratios), [9.0]) is None
    # One outlier among the lines does not move it.
    guard = DivergenceGuard(lines(1, 50, 1, 1), **ratios)
    assert find(guard, [2.0], [5.0]) is None
    assert "2.1 times the usual 1" in str(find(guard, [2.1]))
    assert "5.2 times the usual 1" in str(find(guard, [1.0], [5.2]))
    # It follows the last twenty lines.
    for line in lines(*[10.0] * 20):
        guard.on_log(line)
    assert find(guard, [19.0]) is None


def test_a_resumed_run_judges_alike():
    every = [*lines(3, 4, 5), {"split": "eval", "loss": 1e6}, *lines(6, 7)]
    whole = DivergenceGuard(max_loss_ratio=1.5)
    for line in every:
        if line["split"] == "train":
            whole.on_log(line)
    resumed = DivergenceGuard(every, max_loss_ratio=1.5)
    for loss in (7.5, 7.6):
        assert bool(find(whole, [loss])) == bool(find(resumed, [loss]))
    assert find(resumed, [7.6]) and not find(resumed, [7.5])
