"""Files of a data set stay open within bounds, whatever their number."""

import concurrent.futures
import os
import pickle
import resource

import pytest

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
        found = shared.read(k % 5, 996, 3, len)
        return found == (bytes([k % 5]) * 3, bytes([k % 5]))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(500)))


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: .*No such file"):
        OpenFiles([str(tmp_path / "none")]).read(0, 0, 1, len)
