"""Workers: how they find each other and what they compare."""

import concurrent.futures
import contextlib
import socket
import threading
import time

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.training import workers
from tests.training.cluster import free_ports


@pytest.fixture
def sockets(monkeypatch):
    """Makes free ports of this machine; True for one where somebody listens."""
    monkeypatch.setattr(workers, "_FIRST_LINE_AFTER", 0.1)
    monkeypatch.setattr(workers, "_KNOCKS_EVERY", 0.05)
    with contextlib.ExitStack() as stack:

        def port(listens):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            if listens:
                one.listen()
            return one.getsockname()[1]

        yield port


def test_the_missing_worker_is_named_once_and_the_wait_ends(sockets, capsys):
    present, absent = (f"127.0.0.1:{sockets(listens)}" for listens in (True, False))
    others = {"worker 1": present, "worker 2": absent}
    with pytest.raises(DataError) as error:
        workers.wait_for(others, free_ports(1)[0], timeout=0.5)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"waiting for worker 2 ({absent})"
    message = f"no answer from worker 2 ({absent}) after 0.5 s; "
    assert str(error.value).startswith(message)


def test_two_that_wait_for_each_other_find_each_other(sockets, capsys):
    del sockets
    ports, both = free_ports(2), threading.Barrier(2)

    def run(own, other):
        workers.wait_for({"x": f"127.0.0.1:{other}"}, own, timeout=60)
        with workers.listen(own):  # as TensorFlow does
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
        workers.wait_for({}, port, timeout=1)


@pytest.mark.parametrize(
    "rows, expected",
    [
        ([{"step": 4, "x": "a"}, {"step": 4, "x": "a"}], None),
        ([{"step": 4}, {"step": 0}], "step (worker 0: 4; worker 1: 0);"),
        ([{"x": "a"}, {"x": "b"}, {"x": "a"}], "x (worker 0, 2: a; worker 1: b);"),
        (
            [{"w": {"x": 1, "y": 2}}, {"w": {"x": 1, "y": 3, "z": None}}],
            "w y (worker 0: 2; worker 1: 3);",
        ),
        (
            [{str(i): (i, worker) for i in range(9)} for worker in "ab"],
            "3 (worker 0: (3, 'a'); worker 1: (3, 'b')), 5 more;",
        ),
    ],
)
def test_a_difference_names_the_workers(rows, expected):
    if expected is None:
        workers.check_equal(rows)
        return
    with pytest.raises(DataError) as error:
        workers.check_equal(rows)
    assert expected in str(error.value)


def test_the_digest_sees_names_shapes_and_the_last_bit():
    def digest(**values):
        return workers.digest_of(values)

    one = np.ones([2, 3], np.float32)
    other = one.copy()
    other[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    digests = [digest(a=one), digest(b=one), digest(a=one.T), digest(a=other)]
    assert len(set(digests)) == 4 and digest(a=one) == digests[0]
