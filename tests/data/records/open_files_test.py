"""What is read from a bucket: each file once, and a few records without a copy."""

import concurrent.futures
import io
import os
import tempfile
import types
import uuid

import numpy as np
import pytest

from albert_tf.data.records import open_files, tfrecord
from albert_tf.data.records.open_files import OpenFiles
from albert_tf.errors import DataError
from albert_tf.storage import files

SHARDS, RECORDS = 5, 3000
REAL = files.open_binary


class Traffic:
    """Counts what a bucket is asked for, where `GFile` reads ahead."""

    def __init__(self):
        self.opens = self.trips = self.bytes = 0

    def open(self, path, mode="rb"):
        if mode != "rb":
            return REAL(path, mode)
        self.opens += 1
        with REAL(path) as file:
            return _Counted(file.read(), self)


class _Counted(io.BytesIO):
    def __init__(self, data, traffic):
        super().__init__(data)
        self.traffic, self.size, self.end = traffic, len(data), 0

    def seek(self, at):
        self.end = at  # what was read ahead is dropped
        return super().seek(at)

    def read(self, count=-1):
        data = super().read(count)
        while self.end < self.tell():
            ahead = min(512 << 10, self.size - self.end)
            self.traffic.trips += 1
            self.traffic.bytes += ahead
            self.end += ahead
        return data


@pytest.fixture(scope="module")
def payloads():
    rng = np.random.default_rng(3)
    return [rng.bytes(int(n)) for n in rng.integers(900, 1500, RECORDS)]


@pytest.fixture(scope="module")
def prefix(payloads):
    """Shards of about 700 kB each."""
    folder = f"ram://{uuid.uuid4().hex}"
    files.make_folder(folder)
    prefix, size = files.join(folder, "t"), RECORDS // SHARDS
    for k in range(SHARDS):
        path = tfrecord.shard_name(prefix, k, SHARDS)
        tfrecord.write_shard(path, payloads[k * size : (k + 1) * size])
    return prefix


@pytest.fixture
def traffic(monkeypatch):
    traffic = Traffic()
    monkeypatch.setattr(files, "open_binary", traffic.open)
    return traffic


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """The folder where temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_threads_read_every_byte_about_once(prefix, payloads, traffic, scratch):
    records = tfrecord.RecordSet(prefix)
    used = sum(map(len, payloads))
    assert traffic.bytes < 0.1 * used  # the indexes
    batches = np.random.default_rng(1).permutation(RECORDS).reshape(-1, 100)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = [p for batch in pool.map(records.read, batches) for p in batch]
    assert first == [payloads[k] for k in batches.ravel()]
    assert traffic.bytes < 1.3 * used
    # Nothing is waited for from then on.
    opens, trips = traffic.opens, traffic.trips
    records.read(batches.ravel()[::-1])
    assert (traffic.opens, traffic.trips) == (opens, trips)
    assert not os.listdir(scratch)  # The copy has no name.


def test_a_file_is_copied_once_many_of_its_records_were_read(
    prefix, payloads, monkeypatch, traffic
):
    monkeypatch.setattr(open_files, "READ_AHEAD", 1000)
    copied, copy = [], OpenFiles._copy
    monkeypatch.setattr(
        OpenFiles,
        "_copy",
        lambda self, numbers: copied.append(list(numbers)) or copy(self, numbers),
    )
    records, opens = tfrecord.RecordSet(prefix), traffic.opens
    assert records.read([5, 0]) == [payloads[5], payloads[0]]
    assert not copied and traffic.opens == opens + 2
    for k in range(100):
        assert records[k] == payloads[k]
    assert copied == [[0]]


def test_pieces_are_put_together(prefix, payloads, monkeypatch):
    monkeypatch.setattr(open_files, "_PIECE", 100_000)
    monkeypatch.setattr(open_files, "_BLOCK", 30_000)
    assert tfrecord.RecordSet(prefix).read(range(RECORDS)) == payloads


def test_too_little_room_for_a_copy(prefix, monkeypatch, scratch):
    usage = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(open_files.shutil, "disk_usage", lambda path: usage)
    records = tfrecord.RecordSet(prefix)
    with pytest.raises(DataError, match="1,000 are free; set .* TMPDIR") as error:
        records.read(range(RECORDS))
    assert str(scratch) in str(error.value)


def test_a_file_that_shrinks_before_it_is_copied(bucket):
    path = files.join(bucket, "a.tfrecord")
    files.write_bytes(path, bytes(100))
    opened = OpenFiles([path], [105])
    with pytest.raises(DataError, match="a.tfrecord: .* became shorter"):
        opened.expect([0] * 9)
    assert opened.read(0, 90, 20) == bytes(10)
