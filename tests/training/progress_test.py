"""A run that was killed and resumed shows every step once."""

from unittest import mock

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)

from albert_tf.storage import files
from albert_tf.training.metrics_file import METRICS_FILE, UNFINISHED, read_metrics
from albert_tf.training.progress import Pace, Progress


def read(folder):
    return read_metrics(files.join(folder, METRICS_FILE))


def record(folder, first, steps):
    bar = Progress(folder, first, 9, chief=True, title="run", shown={})
    with bar as progress:
        for step in steps:
            progress.record("eval", step, {"loss": float(100 * first + step)})


def events(folder):
    """Returns step, tag and value of what TensorBoard shows."""
    read = EventAccumulator(files.join(folder, "tensorboard")).Reload()
    return [
        (event.step, tag, tf.make_ndarray(event.tensor_proto).item())
        for tag in sorted(read.Tags()["tensors"])
        for event in read.Tensors(tag)
    ]


def test_steps_after_the_last_checkpoint_are_shown_once(place):
    for first, steps in ((0, [2, 4, 5]), (4, [5, 6, 7]), (6, [7, 8])):
        record(place, first, steps)
    assert events(place) == [
        (step, "eval/loss", value)
        for step, value in [(2, 2), (4, 4), (5, 405), (6, 406), (7, 607), (8, 608)]
    ]


def test_numbers_by_weight_have_a_curve_each(tmp_path):
    folder = str(tmp_path)
    values = {"tokens_per_second": 8.0, "trust_ratios": {"a/kernel": 2.0, "b": 3.0}}
    with Progress(folder, 0, 9, chief=True, title="run", shown={}) as progress:
        progress.record("train", 1, values)
        assert progress.lines() == [{"split": "train", "step": 1, **values}]
    assert events(folder) == [
        (1, "train/tokens_per_second", 8.0),
        (1, "train/trust_ratios/a/kernel", 2.0),
        (1, "train/trust_ratios/b", 3.0),
    ]


def test_a_line_that_a_signal_ended_early_stays_until_the_next_one(bucket):
    def lines():
        return [(m["split"], m["step"]) for m in read(bucket)]

    def train(first, *steps):
        bar = Progress(bucket, first, 9, chief=True, title="run", shown={})
        with bar as progress:
            for step in steps:
                progress.record("train", step, {"tokens_per_second": 1.0})
            if steps[-1:] == (3,):
                progress.note(UNFINISHED, 3, {"sums": {}, "seconds": 1.0})

    train(0, 2, 3)
    stopped = [("train", 2), ("train", 3), (UNFINISHED, 3)]
    bar = Progress(bucket, 3, 9, chief=True, title="run", shown={})
    with bar as progress:
        counted = [(line["split"], line["step"]) for line in progress.lines()]
        assert counted == [("train", 2), (UNFINISHED, 3)]
    train(3)  # killed before its first line, or nothing was left to do
    assert lines() == stopped
    train(3, 4)
    assert lines() == [("train", 2), (UNFINISHED, 3), ("train", 4)]
    train(4, 6)
    assert lines()[-2:] == [("train", 4), ("train", 6)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("create_file_writer", "x; No space left on device"),
        (
            "scalar",
            "{{function_node __wrapped__W}} x; No space left on device [Op:W] name:",
        ),
    ],
)
def test_a_full_disk_costs_tensorboard_and_is_said_once(
    tmp_path, monkeypatch, caplog, name, message
):
    full = tf.errors.ResourceExhaustedError(None, None, message)
    monkeypatch.setattr(tf.summary, name, mock.Mock(side_effect=full))
    record(str(tmp_path), 0, [2, 4])
    assert caplog.messages == ["tensorboard is not written: No space left on device"]
    assert [line["step"] for line in read(str(tmp_path))] == [2, 4]


def counts(seconds_per_step, total):
    pace, result = Pace(), []
    while sum(result) < total:
        count = pace.limit(total - sum(result))
        pace.measured(count, count * seconds_per_step)
        result.append(count)
    return result


def test_short_steps_are_joined_and_long_ones_are_not():
    assert counts(0.001, 127) == [1, 2, 4, 8, 16, 32, 64]
    assert counts(0.3, 13) == [1, 2, 4, 4, 2]
    assert counts(60.0, 3) == [1, 1, 1]


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
