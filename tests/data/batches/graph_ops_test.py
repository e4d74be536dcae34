import threading
import time

import pytest
import tensorflow as tf

from albert_tf.data.batches.graph_ops import Calls, python_op


def test_values_and_errors_are_those_of_the_function():
    assert python_op(lambda n: n * 2, [tf.constant(4)], tf.int32).numpy() == 8
    with pytest.raises(ValueError, match="bad"):
        python_op(_fail, [tf.constant(4)], tf.int32)


def _fail(number):
    raise ValueError("bad")


def test_a_process_that_ends_waits_for_what_runs():
    calls, started, done = Calls(), threading.Event(), []

    def slow():
        started.set()
        time.sleep(0.5)
        done.append(True)

    calls.wait()  # Nothing has run: returns at once.
    thread = threading.Thread(target=calls.run, args=(slow, ()))
    thread.start()
    started.wait()
    calls.wait()
    assert done == [True]
    thread.join()
