"""TFRecord files: framing, index, random access, messages, and damaged ones."""

import concurrent.futures
import os
import pathlib
import pickle
import resource

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from albert_tf.data.records import open_files, tfrecord
from albert_tf.errors import DataError, UsageError

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), min_size=1, max_size=7)


def _make(folder, sizes, name="a"):
    paths = []
    for k, size in enumerate(sizes):
        path = str(folder / f"{name}-{k:05d}-of-{len(sizes):05d}.tfrecord")
        tfrecord.write_shard(path, (b"%d-%d" % (k, n) * (n + 1) for n in range(size)))
        paths.append(path)
    return paths


def test_written_files_are_read_by_tensorflow(tmp_path):
    paths = _make(tmp_path, [5, 3])
    expected = [r.numpy() for r in tf.data.TFRecordDataset(paths)]
    assert expected[3] == b"0-3" * 4
    for pattern in (paths, str(tmp_path), ",".join(reversed(paths)), f"{tmp_path}/a-*"):
        records = tfrecord.RecordSet(pattern)
        assert records.paths == paths and records.read(range(8)) == expected
    with pytest.raises(UsageError, match=r"\[0, 8\), received 8"):
        records.read([0, 8])


def test_an_index_that_is_missing_or_of_another_file_is_replaced_by_a_scan(tmp_path):
    short, long = _make(tmp_path, [2, 6])
    borders = tfrecord.shard_borders(long)
    assert len(borders) == 7
    os.replace(tfrecord.index_path(short), tfrecord.index_path(long))
    for path in (short, long):
        found = tfrecord.shard_borders(path)
        assert found[-1] == os.path.getsize(path)
    np.testing.assert_array_equal(found, borders)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data, at: data[:-3], "record 3 at byte {}: .*ends inside the record"),
        (lambda data, at: data[:at], "contains only 3 of the 4 records"),
        (
            lambda data, at: data[: at + 13] + b"x" + data[at + 14 :],
            "record 3 at byte {}: checksum",
        ),
        (
            lambda data, at: b"This is plain text and no record file at all.",
            "record 0 at byte 0: .*not a TFRecord file",
        ),
        (lambda data, at: b"", "contains only 0 of the 4 records"),
    ],
)
def test_damaged_files_are_named(tmp_path, damage, message):
    path = pathlib.Path(*_make(tmp_path, [4]))
    at = int(tfrecord.shard_borders(str(path))[3])
    path.write_bytes(damage(path.read_bytes(), at))
    with pytest.raises(DataError, match=f"{path}: {message.format(at)}"):
        tfrecord.RecordSet(str(path)).read([2, 3])


def test_an_index_with_a_wrong_offset_in_the_middle_may_be_at_fault(tmp_path):
    (path,) = _make(tmp_path, [4])
    offsets = np.fromfile(tfrecord.index_path(path), "<u8")
    offsets[1] += 1
    offsets.tofile(tfrecord.index_path(path))
    with pytest.raises(DataError, match="record 0 .*the file or its index is damaged"):
        tfrecord.RecordSet(path).read([0])


def test_a_file_that_is_cut_or_gone_after_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "MAX_OPEN", 1)
    first, second = _make(tmp_path, [4, 4])
    records = tfrecord.RecordSet([first, second])
    os.truncate(first, 50)
    os.remove(second)
    for number, message in ((3, "ends inside"), (4, "cannot be read: .*No such file")):
        with pytest.raises(DataError, match=message):
            records.read([number])


def test_empty_and_missing_files_are_refused(tmp_path):
    (tmp_path / "x.tfrecord").touch()
    with pytest.raises(DataError, match="hold no records"):
        tfrecord.RecordSet(str(tmp_path / "x.tfrecord"))
    with pytest.raises(DataError, match="no record file matches"):
        tfrecord.RecordSet(str(tmp_path / "y.tfrecord"))


def test_a_failing_source_leaves_no_file(tmp_path):
    def broken():
        yield b"x"
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        tfrecord.write_shard(str(tmp_path / "x.tfrecord"), broken())
    assert not list(tmp_path.iterdir())


@pytest.fixture
def few_files(monkeypatch):
    """Leaves room for 40 open files besides those already open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    monkeypatch.setattr(open_files, "MAX_OPEN", 8)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files")
def test_more_shards_than_a_process_may_open(tmp_path, few_files):
    records = tfrecord.RecordSet(_make(tmp_path, [2] * 60))
    expected = [b"%d-%d" % (k, n) * (n + 1) for k in range(60) for n in range(2)]
    assert records.read(range(120)) == expected
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(records.__getitem__, range(120))) == expected
    # A copy for another process opens files of its own.
    assert pickle.loads(pickle.dumps(records))[6] == b"3-0"


@hypothesis.given(ROWS)
def test_messages_are_those_of_protobuf(rows):
    flat = np.array([v for row in rows for v in row], np.int64)
    lengths = np.array([len(row) for row in rows])
    made = tfrecord.serialize_batch(
        {
            "long_name": (flat, lengths),
            "bits": (flat % 2, lengths),
            "weights": ((flat % 7).astype(np.float32), lengths),
        }
    )
    for row, payload in zip(rows, made, strict=True):
        example = tf.train.Example()
        features = example.features.feature
        features["long_name"].int64_list.value[:] = row
        features["bits"].int64_list.value[:] = [v % 2 for v in row]
        features["weights"].float_list.value[:] = [v % 7 for v in row]
        for name in ("long_name", "bits"):
            features[name].int64_list.SetInParent()  # also if it is empty
        features["weights"].float_list.SetInParent()
        assert payload == example.SerializeToString(deterministic=True)
