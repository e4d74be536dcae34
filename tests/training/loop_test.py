"""What the loop does after which step, with a step that only counts."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError
from albert_tf.objectives.objective import Objective
from albert_tf.training import loop
from albert_tf.training.intervals import Intervals
from albert_tf.training.progress import Stopwatch


class CountingObjective(Objective):
    """The loss is the mean of the numbers of the steps."""

    def metrics(self, sums):
        return {"loss": float(sums["loss_sum"] / sums["tokens"])}


class CountingStep:
    """Adds the numbers of its steps; a gradient may be infinite at one of them."""

    sum_names = ("loss_sum", "tokens")
    objective = CountingObjective("count", (), ())

    def __init__(self, done=0, bad_gradient_at=None):
        self.done = done
        self.bad_gradient_at = bad_gradient_at

    def train(self, iterator, count):
        numbers = range(self.done, self.done + count)
        self.done += count
        norm = np.inf if self.bad_gradient_at == self.done else 1.0
        return {
            "loss_sum": tf.constant(float(sum(numbers))),
            "tokens": tf.constant(float(count)),
            "learning_rate": tf.constant(0.5),
            "grad_norm": tf.constant(norm),
        }


class Recorder:
    """Checkpoints and progress of a run as a list of events."""

    def __init__(self, step=0):
        self.step = step
        self.events = []

    def save(self):
        self.events.append("save")

    def finish(self):
        self.events.append("finish")

    def advance(self, step):
        self.events.append(step)

    def record(self, split, step, values):
        self.events.append((split, values["loss"]))

    def log(self, text):
        assert text.startswith("step ")


INTERVALS = Intervals(
    num_train_steps=7,
    log_steps=3,
    save_checkpoints_steps=2,
    eval_steps=4,
    iterations_per_loop=10,
)


def run(done=0, evaluated_steps=(), **options):
    recorder = Recorder(done)
    loop.train(
        CountingStep(done, **options),
        [],
        INTERVALS,
        recorder,
        recorder,
        lambda: {"loss": -1.0},
        evaluated_steps,
    )
    return recorder.events


def test_everything_happens_when_it_is_due():
    evaluation = ("eval", -1.0)
    assert run() == [
        # Metrics are also recorded with every checkpoint.
        *(2, ("train", 0.5), "save", 3, ("train", 2.0)),
        *(4, ("train", 3.0), "save", evaluation),
        *(6, ("train", 4.5), "save", 7, ("train", 6.0), "save", evaluation, "finish"),
    ]


def test_an_evaluation_lost_by_a_kill_is_made_up():
    events = run(done=4)
    assert events[0] == ("eval", -1.0)
    assert events[1:] == run(done=4, evaluated_steps=[4])
    # Also where nothing is left to train.
    assert run(done=7) == [("eval", -1.0), "finish"]
    assert run(done=7, evaluated_steps=[4, 7]) == ["finish"]
    assert run(done=2) == run(done=2, evaluated_steps=[2])  # none was due


def test_no_checkpoint_after_an_infinite_gradient():
    recorder = Recorder()
    step = CountingStep(bad_gradient_at=4)
    with pytest.raises(DataError, match="gradient norm is inf at step 4"):
        loop.train(step, [], INTERVALS, recorder, recorder)
    assert recorder.events.count("save") == 1


def test_pauses_are_not_measured(monkeypatch):
    clock = iter([0.0, 5.0, 105.0, 112.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    with watch.paused():
        pass
    assert watch.lap() == 12.0
