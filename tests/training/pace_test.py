"""Calls of the step grow until they take seconds."""

from albert_tf.training.pace import Pace


def counts(seconds_per_step, total, fixed=False):
    pace, result = Pace(fixed), []
    while sum(result) < total:
        count = pace.limit(total - sum(result))
        pace.measured(count, count * seconds_per_step)
        result.append(count)
    return result


def test_short_steps_are_joined_and_long_ones_are_not():
    assert counts(0.001, 127) == [1, 2, 4, 8, 16, 32, 64]
    assert counts(0.3, 13) == [1, 2, 4, 4, 2]
    assert counts(60.0, 3) == [1, 1, 1]
    assert counts(60.0, 3, fixed=True) == [3]


def test_a_step_that_becomes_slower():
    pace = Pace()
    for _ in range(5):
        pace.measured(pace.limit(100), 0.1)
    assert pace.limit(100) == 32
    pace.measured(32, 9.0)
    assert pace.limit(100) == 16
    # The last steps before something is due say nothing about longer calls.
    pace.measured(pace.limit(1), 0.1)
    assert pace.limit(100) == 16
