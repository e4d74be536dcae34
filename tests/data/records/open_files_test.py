"""Files of a data set stay open within bounds, whatever their number."""

import concurrent.futures
import os
import pickle
import resource
import threading
import uuid

import pytest
import tensorflow as tf

from albert_tf.data.records import open_files, tfrecord
from albert_tf.data.records.open_files import OpenFiles
from albert_tf.errors import DataError
from albert_tf.storage import files


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
    for k in range(60):
        path = tfrecord.shard_name(str(tmp_path / "t"), k, 60)
        tfrecord.write_shard(path, [b"%d" % k, b"%d again" % k])
    records = tfrecord.RecordSet(str(tmp_path / "t"))
    assert records.read(range(120)) == [
        payload for k in range(60) for payload in (b"%d" % k, b"%d again" % k)
    ]
    assert records.read([118, 0, 118]) == [b"59", b"0", b"59"]
    # A copy for another process opens files of its own.
    assert pickle.loads(pickle.dumps(records))[7] == b"3 again"


def test_threads_share_files(tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "MAX_OPEN", 2)
    paths = [str(tmp_path / str(k)) for k in range(5)]
    for k, path in enumerate(paths):
        files.write_bytes(path, bytes([k]) * 1000)
    shared = OpenFiles(paths)

    def read(k):
        return shared.read(k % 5, (10, 3), (999, 3)) == [bytes([k % 5]) * 3] + [
            bytes([k % 5])
        ]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(500)))


def test_a_remote_file_is_opened_once_for_threads_that_take_turns(monkeypatch):
    folder = f"ram://{uuid.uuid4().hex}"
    tf.io.gfile.makedirs(folder)
    path = files.join(folder, "a")
    files.write_bytes(path, b"0123456789")
    opened, real = [], files.open_binary
    monkeypatch.setattr(
        files, "open_binary", lambda *args: opened.append(args) or real(*args)
    )
    shared, found = OpenFiles([path]), []
    for k in range(4):
        thread = threading.Thread(
            target=lambda k=k: found.append(shared.read(0, (k, 2)))
        )
        thread.start()
        thread.join()
    assert found == [[b"01"], [b"12"], [b"23"], [b"34"]]
    assert len(opened) == 1


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: .*No such file"):
        OpenFiles([str(tmp_path / "none")]).read(0, (0, 1))
