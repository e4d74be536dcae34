"""What the loop does after which step, with a step that only counts."""

import contextlib
import os
import signal
import threading
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, Stopped
from albert_tf.objectives.pretraining import Objective
from albert_tf.training import loop
from albert_tf.training.callbacks import DivergedError, DivergenceGuard
from albert_tf.training.loop import Loop, StopSignals
from albert_tf.training.metrics_file import lines_until, unfinished_at
from albert_tf.training.progress import Stopwatch
from albert_tf.training.settings import Phase


class CountingObjective(Objective):
    """The loss is the mean of the numbers of the steps."""

    def metrics(self, sums):
        return {"loss": float(sums["loss_sum"] / sums["tokens"])}


class CountingStep:
    """Adds the numbers of its steps; a gradient may be infinite at one of them."""

    sum_names = ("loss_sum", "tokens", "positions")
    objective = CountingObjective("count", (), ())
    strategy = tf.distribute.get_strategy()

    def __init__(self, done=0, bad_gradient_at=None, signal_at=None):
        self.done = done
        self.bad_gradient_at = bad_gradient_at
        self.signal_at = signal_at

    def train(self, iterator, count, totals):
        numbers = range(self.done, self.done + count)
        self.done += count
        norms = [np.inf if n + 1 == self.bad_gradient_at else 1.0 for n in numbers]
        if self.signal_at in [n + 1 for n in numbers]:
            os.kill(os.getpid(), signal.SIGTERM)
        before = totals or {"loss_sum": 0.0, "tokens": 0.0, "positions": 0.0}
        return {
            "loss_sum": before["loss_sum"] + float(sum(numbers)),
            "tokens": before["tokens"] + float(count),
            "positions": before["positions"] + 4.0 * count,
            "learning_rate": 0.5,
            "losses": [float(n) for n in numbers],
            "grad_norms": norms,
            "trust_ratios": {"kernel": 0.25 * self.done},
        }


class Recorder:
    """Checkpoints and progress of a run as a list of events."""

    def __init__(self, step=0, failures=(), lost=()):
        self.step = step
        self.events, self.lines, self.said = [], [], []
        self.failures, self.lost = list(failures), list(lost)

    def save(self, wait=False):
        failed = self.failures and self.failures.pop(0)
        self.events.append("fail" if failed else "save")
        if failed:
            raise DataError("bucket: does not answer")

    def finish(self):
        self.events.append("finish")

    def check(self):
        if self.lost and self.lost.pop(0):
            raise DataError("disk: is full")

    def advance(self, step):
        pass

    def record(self, split, step, values):
        self.note(split, step, values)
        self.events.append((split, step, values["loss"]))

    def note(self, split, step, values):
        self.lines.append({"split": split, "step": step, **values})

    def log(self, text):
        self.said.append(text)


def phase(steps, log_steps, save, evaluate=0, calls=10):
    settings = types.SimpleNamespace(
        log_steps=log_steps,
        save_checkpoints_steps=save,
        eval_steps=evaluate,
        iterations_per_loop=calls,
        num_train_steps=steps,
        profile_steps=(),
    )
    return Phase(0, steps, settings)


def train(
    recorder, step=None, evaluate=None, callbacks=(), lines=(), due=None, end=None
):
    step, due = step or CountingStep(recorder.step), due or phase(7, 3, 2, 4)
    with StopSignals() as signals:
        end = end or due.last_step
        training = Loop(step, recorder, recorder, evaluate, callbacks, signals, end)
        training.train(due, [], lines)


def evaluate():
    return {"loss": -1.0}


def run(done=0, evaluated_steps=(), **options):
    recorder, step = Recorder(done), CountingStep(done, **options)
    lines = [{"split": "eval", "step": step} for step in evaluated_steps]
    train(recorder, step, evaluate, [DivergenceGuard()], lines)
    return recorder.events


def test_everything_happens_when_it_is_due():
    assert run() == [
        # Metrics are also recorded with every checkpoint.
        *(("train", 2, 0.5), "save", ("train", 3, 2.0)),
        *(("train", 4, 3.0), "save", ("eval", 4, -1.0)),
        *(("train", 6, 4.5), "save"),
        *(("train", 7, 6.0), "save", ("eval", 7, -1.0), "finish"),
    ]


def test_a_line_tells_tokens_their_share_and_trust_ratios():
    recorder = Recorder()
    train(recorder)
    assert [
        (line["step"], line["tokens"], line["useful_token_rate"], line["trust_ratios"])
        for line in recorder.lines
    ] == [
        (2, 2.0, 0.25, {"kernel": 0.5}),
        (3, 1.0, 0.25, {"kernel": 0.75}),
        (4, 1.0, 0.25, {"kernel": 1.0}),
        (6, 2.0, 0.25, {"kernel": 1.5}),
        (7, 1.0, 0.25, {"kernel": 1.75}),
    ]


def test_an_evaluation_lost_by_a_kill_is_made_up():
    events = run(done=4)
    assert events[0] == ("eval", 4, -1.0)
    assert events[1:] == run(done=4, evaluated_steps=[4])
    # Also where nothing is left to train.
    assert run(done=7) == [("eval", 7, -1.0), "finish"]
    assert run(done=7, evaluated_steps=[4, 7]) == ["finish"]
    assert run(done=2) == run(done=2, evaluated_steps=[2])  # none was due


def test_no_checkpoint_after_an_infinite_gradient():
    recorder = Recorder()
    step = CountingStep(bad_gradient_at=4)
    with pytest.raises(DivergedError, match="gradient norm is inf at step 4") as found:
        train(recorder, step, callbacks=[DivergenceGuard()])
    assert recorder.events.count("save") == 1
    assert found.value.step == 4


def test_what_another_worker_decides_is_decided(monkeypatch):
    found = ["the loss is 9 at step 1", 1, {"loss": 9.0}]
    for theirs, error in ((found, DivergedError), (None, Stopped)):
        share = lambda _, mine, theirs=theirs: [mine, [theirs, True, 1]]  # noqa: E731
        monkeypatch.setattr(loop, "share", share)
        with pytest.raises(error, match="at step 1") as caught:
            run()
        assert getattr(caught.value, "step", 1) == 1


def test_all_workers_continue_at_the_pace_of_the_chief(monkeypatch):
    def share(_, mine):
        return [[None, False, 2], mine] if isinstance(mine, list) else [mine]

    monkeypatch.setattr(loop, "share", share)
    step, counts = CountingStep(), []
    made = step.train
    step.train = lambda iterator, count, totals: (
        counts.append(count) or made(iterator, count, totals)
    )
    train(Recorder(), step, due=phase(9, 9, 9))
    assert counts == [1, 2, 2, 2, 2]  # alone, it would be 1, 2, 4 and 2


@pytest.mark.parametrize("at", [1, 3, 4, 5])
def test_a_signal_ends_the_run_after_a_checkpoint(at):
    before = signal.getsignal(signal.SIGTERM)
    recorder = Recorder()
    step = CountingStep(signal_at=at)
    with pytest.raises(Stopped, match=r"stopped at step (\d) of 7; the same") as found:
        train(recorder, step, evaluate)
    assert recorder.events[-2:] == ["save", "finish"]
    assert f"stopped at step {step.done} " in str(found.value)
    assert found.value.exit_code == 143
    # What was measured since the last line is on record.
    assert recorder.events[-3][:2] == ("train", step.done)
    assert signal.getsignal(signal.SIGTERM) is before
    # At the last step it changes nothing; continued, the run ends as any other.
    assert run(signal_at=7) == run()
    rest = Recorder(step.done)
    train(rest, evaluate=evaluate, lines=recorder.lines)
    assert rest.events[-4:] == run()[-4:]


def judged(lines):
    """Returns what the guard and the reports go by: all lines but for their speed."""
    return [
        {k: v for k, v in line.items() if k != "tokens_per_second"}
        for line in lines
        if line["split"] == "train"
    ]


@pytest.mark.parametrize("stops", [[1], [5], [6], [8], [1, 2, 4, 5, 7, 8]], ids=str)
def test_a_stopped_run_measures_as_one_that_was_not(stops):
    due = phase(13, 3, 7, calls=1)
    whole, recorder, lines = Recorder(), Recorder(), []
    train(whole, due=due)
    for stop in [*stops, None]:
        step = CountingStep(recorder.step, signal_at=stop)
        ends = pytest.raises(Stopped) if stop else contextlib.nullcontext()
        with ends:
            train(recorder, step, lines=lines, due=due)
        # What a process that begins now reads; a kill may follow before the next line.
        lines = lines_until(lines + recorder.lines, step.done)
        recorder = Recorder(step.done)
    assert judged(lines) == judged(whole.lines)
    guards = [DivergenceGuard(x, max_loss_ratio=2) for x in (lines, whole.lines)]
    for guard in guards:
        with pytest.raises(DivergedError, match="2.2 times the usual 6.75"):
            guard.on_step(13, CountingStep(15).train(None, 1, None))


def test_the_time_of_a_stopped_run_counts(monkeypatch):
    recorder = Recorder()
    clock = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: 10.0 * next(clock))
    with pytest.raises(Stopped):
        due = phase(9, 3, 5000, calls=1)
        train(recorder, CountingStep(signal_at=2), due=due)
    early, unfinished = recorder.lines
    assert unfinished["seconds"] == 2.0 / early["tokens_per_second"] > 0
    # Sums of an objective that has changed since then are of no use.
    for name, tokens in (("loss_sum", 3.0), ("other_sum", 1.0)):
        sums = {**unfinished["sums"], name: 1.0}
        rest = Recorder(2)
        train(rest, lines=[{**unfinished, "sums": sums}], due=due)
        assert rest.lines[0]["tokens"] == tokens


def test_a_checkpoint_that_failed_is_tried_again_with_the_next_line():
    recorder = Recorder(failures=[True])
    train(recorder)
    assert recorder.events == [
        *(("train", 2, 0.5), "fail", ("train", 3, 2.0), "save"),
        *(("train", 4, 3.0), "save", ("train", 6, 4.5), "save"),
        *(("train", 7, 6.0), "save", "finish"),
    ]
    (warning,) = recorder.said
    assert "bucket: does not answer; it is tried again with the next log" in warning


def test_a_checkpoint_lost_in_the_background_is_written_again():
    recorder = Recorder(lost=[False, True])
    train(recorder)
    assert recorder.events[:4] == [("train", 2, 0.5), "save", ("train", 3, 2.0), "save"]
    assert "disk: is full; it is tried again now" in recorder.said[0]


def test_a_part_of_a_run_ends_it_only_for_a_signal(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    # A checkpoint at the end of a part may fail ...
    recorder = Recorder(6, failures=[True])
    train(recorder, end=9)
    assert recorder.events[1:] == ["fail", "finish"]
    # ... and a signal that arrives there is not lost.
    recorder = Recorder(6)
    with pytest.raises(Stopped, match="stopped at step 7 of 9"):
        train(recorder, CountingStep(6, signal_at=7), end=9)
    assert recorder.events[1:] == ["save", "finish"]
    # One that was lost in the background ends a run only at its own end.
    for end in (9, 7):
        recorder, full = Recorder(6), DataError("disk: is full")
        monkeypatch.setattr(recorder, "finish", mock.Mock(side_effect=full))
        lost = pytest.raises(DataError, match="disk: is full")
        with lost if end == 7 else contextlib.nullcontext():
            train(recorder, end=end)
        warned = ["warning: disk: is full; training goes on"]
        assert recorder.said == (warned if end == 9 else [])


def test_the_last_checkpoint_must_succeed(monkeypatch):
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    recorder = Recorder(done := 6, failures=[True, True])
    train(recorder)
    assert recorder.events[1:] == ["fail", "fail", "save", "finish"]
    assert len(pauses) == 2
    recorder = Recorder(done, failures=[True] * 9)
    with pytest.raises(DataError, match="does not answer"):
        train(recorder)
    assert "finish" not in recorder.events


def test_pauses_are_not_measured(monkeypatch):
    clock = iter([0.0, 5.0, 105.0, 112.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    with watch.paused():
        pass
    assert watch.lap() == 12.0


@pytest.mark.parametrize("content", [{}, {"sums": {"a": "x"}, "seconds": 1.0}])
def test_a_changed_line_of_a_stopped_run_is_named(content):
    lines = [{"split": "unfinished", "step": 7, **content}]
    assert unfinished_at(lines, 6) is None
    with pytest.raises(DataError, match="the line of step 7 with split 'unfinished'"):
        unfinished_at(lines, 7)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_has_its_usual_effect(number, capfd):
    def usual(number, frame):
        raise InterruptedError

    before = signal.signal(number, usual)
    try:
        with StopSignals() as signals:
            assert signals.received == ""
            os.kill(os.getpid(), number)
            assert signals.received == number.name
            assert "saving at the end of this step" in capfd.readouterr().err
            with pytest.raises(InterruptedError):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is usual
        signal.signal(number, signal.SIG_IGN)  # as in a background job
        with StopSignals() as signals:
            os.kill(os.getpid(), number)
            assert signals.received == ""
    finally:
        signal.signal(number, before)


def test_other_threads_leave_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def look():
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_reader_of_the_log_that_ctrl_c_ends_too_does_no_harm():
    stderr, ends = os.dup(2), os.pipe()
    os.dup2(ends[1], 2)
    for end in ends:
        os.close(end)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            os.write(2, b"saved")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    assert signals.received == "SIGTERM"
