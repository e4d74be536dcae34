"""A worker says for whom it waits, and does not wait for ever."""

import socket
import subprocess
import sys

PROGRAM = """
import sys, time
from albert_tf.training.tensorflow import waiting
waiting._FIRST_LINE_AFTER = 0.3
waiting._ASKED_EVERY = 0.1
others = {{"worker 1": {present!r}, "worker 2": {absent!r}}}
with waiting.waiting_for(others, {timeout}):
    time.sleep({seconds})
print("all there")
time.sleep(0.5)
"""


def run(timeout, seconds):
    with socket.socket() as listening, socket.socket() as closed:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        closed.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in (listening, closed)]
        code = PROGRAM.format(
            present=addresses[0], absent=addresses[1], timeout=timeout, seconds=seconds
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
        )
        return result, addresses[1]


def test_the_missing_worker_is_named_once_and_the_wait_ends():
    result, absent = run(timeout=1, seconds=90)
    assert result.returncode == 1 and result.stdout == ""
    line, error = result.stderr.splitlines()
    assert line == f"waiting for worker 2 ({absent})"
    assert error.startswith(f"error: no answer from worker 2 ({absent}) after 1 s; ")


def test_a_wait_that_ends_in_time_is_left_alone():
    result, _ = run(timeout=1, seconds=0.1)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "all there\n"
    result, absent = run(timeout=0, seconds=1)
    assert result.returncode == 0
    assert result.stderr == f"waiting for worker 2 ({absent})\n"
