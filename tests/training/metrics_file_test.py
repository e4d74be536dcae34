"""The file of a run's measurements: what opening it and adding lines to it cost."""

import json
import math

import pytest

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.training.metrics_file import PARTS, MetricsFile, read_metrics


@pytest.fixture
def remote(bucket):
    return files.join(bucket, "metrics.jsonl")


def line(step):
    return {"split": "train", "step": step, "loss": 1 / (step + 1)}


def test_opening_compares_no_line_with_another(tmp_path, monkeypatch):
    class Line(dict):
        def __eq__(self, other):
            raise AssertionError("as many comparisons as the square of the lines")

    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line(step)) + "\n" for step in range(9)))
    read = files.from_json
    monkeypatch.setattr(files, "from_json", lambda text: Line(read(text)))
    opened = MetricsFile(path, 5)
    assert [x["step"] for x in opened.settled()] == [0, 1, 2, 3, 4, 5]


def test_a_line_in_a_bucket_is_not_uploaded_with_all_before_it(remote, monkeypatch):
    written = []
    write = files.write_bytes
    monkeypatch.setattr(
        files, "write_bytes", lambda p, d, *a: (written.append(len(d)), write(p, d, *a))
    )
    opened = MetricsFile(remote, 0)
    lines = [line(step) for step in range(1, 1001)]
    for one in lines:
        opened.append(one)
    size = sum(len(json.dumps(one)) + 1 for one in lines)
    assert sum(written) < 30 * size  # 500 times with all before it
    assert max(written) < size / 10
    assert read_metrics(remote) == lines  # of a run that goes on, or was killed
    opened.settle()
    assert sum(written) < 31 * size
    assert not files.exists(remote + PARTS)
    assert read_metrics(remote) == lines


def test_a_resumed_run_joins_the_parts_that_count(remote, monkeypatch):
    opened = MetricsFile(remote, 0)
    for step in range(1, 121):
        opened.append(line(step))

    def interrupt(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        # Killed between writing the file and removing the parts.
        patch.setattr(files, "remove_tree", interrupt)
        MetricsFile(remote, 70)
    assert read_metrics(remote) == [line(step) for step in range(1, 71)]
    opened = MetricsFile(remote, 60)
    opened.append(line(61))
    assert read_metrics(remote) == [line(step) for step in range(1, 62)]


def test_numbers_that_are_not_finite_survive_as_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    values = {"split": "eval", "step": 2, "pearson": math.nan, "by": {"a": -math.inf}}
    skipped = {"split": "skipped", "step": 2, "loss": None}
    opened = MetricsFile(path, 0)
    opened.append(values)
    opened.append(skipped)
    read = json.loads(path.read_text().splitlines()[0], parse_constant=pytest.fail)
    assert read == {**values, "pearson": None, "by": {"a": None}}
    measured, other = read_metrics(path)
    assert math.isnan(measured["pearson"]) and math.isnan(measured["by"]["a"])
    assert other == skipped


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        *((bad, "JSON") for bad in ("{", "[" * 200_000)),
        *((bad, "an object") for bad in ("1", "[1]", '{"split": "train"}')),
        ('{"step": null}', "an object"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, bad, message):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{json.dumps(line(1))}\n{bad}\n{json.dumps(line(2))}\n")
    with pytest.raises(DataError, match=f"metrics.jsonl: line 2 must be {message}"):
        MetricsFile(path, 5)
