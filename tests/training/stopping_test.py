"""Signals that ask a run to end."""

import os
import signal
import threading

import pytest

from albert_tf.training.loop import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_and_the_second_has_its_usual_effect(number, capfd):
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
    finally:
        signal.signal(number, before)


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert signals.received == ""
    finally:
        signal.signal(signal.SIGINT, before)


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


def test_a_reader_of_the_log_that_ctrl_c_ends_too_does_no_harm(run_python):
    code = """
import os, signal, sys
from albert_tf.training.loop import StopSignals
ends = os.pipe()
os.dup2(ends[1], 2)
for end in ends:
    os.close(end)
with StopSignals() as signals:
    os.kill(os.getpid(), signal.SIGINT)
    print("saved", file=sys.stderr, flush=True)
print(signals.received)
"""
    assert run_python("-c", code).stdout == "SIGINT\n"
