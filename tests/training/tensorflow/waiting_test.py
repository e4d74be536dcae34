"""A worker says for whom it waits, and does not wait for ever."""

import concurrent.futures
import contextlib
import socket
import threading
import time

import pytest

from albert_tf.errors import DataError
from albert_tf.training.tensorflow import strategy as waiting


@pytest.fixture
def sockets(monkeypatch):
    """Makes free ports of this machine; True for one where somebody listens."""
    monkeypatch.setattr(waiting, "_FIRST_LINE_AFTER", 0.1)
    monkeypatch.setattr(waiting, "_KNOCKS_EVERY", 0.05)
    with contextlib.ExitStack() as stack:

        def port(listens):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            if listens:
                one.listen()
            return one.getsockname()[1]

        yield port


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_the_missing_worker_is_named_once_and_the_wait_ends(sockets, capsys):
    present, absent = (f"127.0.0.1:{sockets(listens)}" for listens in (True, False))
    others = {"worker 1": present, "worker 2": absent}
    with pytest.raises(DataError) as error:
        waiting.wait_for(others, free_port(), timeout=0.5)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"waiting for worker 2 ({absent})"
    message = f"no answer from worker 2 ({absent}) after 0.5 s; "
    assert str(error.value).startswith(message)


def test_two_that_wait_for_each_other_find_each_other(sockets, capsys):
    del sockets
    ports, both = [free_port(), free_port()], threading.Barrier(2)

    def run(own, other):
        waiting.wait_for({"x": f"127.0.0.1:{other}"}, own, timeout=60)
        with waiting._listen(own):  # as TensorFlow does
            both.wait(60)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        first = threads.submit(run, *ports)
        while "waiting for x" not in capsys.readouterr().err:
            time.sleep(0.01)
        second = threads.submit(run, *ports[::-1])
    assert first.result() is second.result() is None


def test_a_port_in_use_is_named(sockets):
    port = sockets(True)
    with pytest.raises(DataError, match=f"port {port} cannot be opened: Address"):
        waiting.wait_for({}, port, timeout=1)
