"""A call that fails once is repeated; one that keeps failing is no answer."""

import errno
import os
import uuid

import pytest
import tensorflow as tf

from albert_tf.data.records import shards
from albert_tf.errors import DataError
from albert_tf.storage import calls, files, streams
from albert_tf.storage.streams import find_checkpoints
from tests.storage import flaky


@pytest.fixture(params=["local", "ram://", "file://"])
def folder(request, tmp_path):
    """A folder with a checkpoint and a record file."""
    path = f"{tmp_path}/flaky"
    if request.param != "local":
        path = f"{request.param}{path}-{uuid.uuid4().hex}"
    files.make_folder(path)
    for name in ("step-20.index", "t-00000-of-00001.tfrecord"):
        files.write_text(files.join(path, name), "text")
    return path


@pytest.fixture
def questions(folder):
    """What is asked when a run is resumed, and the answers."""
    shard = files.join(folder, "t-00000-of-00001.tfrecord")
    return (
        (lambda: files.is_folder(folder), True),
        (lambda: files.exists(shard), True),
        (lambda: find_checkpoints(folder), {20: files.join(folder, "step-20")}),
        (lambda: shards.find_shards(files.join(folder, "t")), [shard]),
        (lambda: shards.find_shards(files.join(folder, "t-*")), [shard]),
        (lambda: shards.find_shards(folder), [shard]),
        (lambda: streams.status(shard).size, 4),
        (lambda: files.read_text(shard), "text"),
    )


def test_a_call_that_fails_once_is_repeated(questions, monkeypatch):
    for ask, answer in questions:
        with monkeypatch.context() as patch:
            flaky.make_flaky(patch, flaky.once())
            assert ask() == answer


def test_what_cannot_be_asked_is_not_absent(questions, monkeypatch):
    flaky.make_flaky(monkeypatch, lambda: True)
    for ask, _ in questions[:-1]:
        with pytest.raises(DataError, match="cannot be reached: (Stale|bucket)"):
            ask()


def test_files_survive_a_flaky_file_system(folder, monkeypatch):
    flaky.make_flaky(monkeypatch, flaky.now_and_then(0.05))
    content = os.urandom(1000)
    for number in range(50):
        inner = files.join(folder, f"inner-{number}")
        files.make_folder(inner)
        for _ in range(2):
            files.write_bytes(files.join(inner, "x"), content)
        with files.open_binary(files.join(inner, "x")) as file:
            file.seek(-900, os.SEEK_END)
            assert file.read(10) + file.read() == content[100:]
            assert streams.status(files.join(inner, "x")).size == 1000
            file.seek(50)
            assert file.read(7) == content[50:57] and file.tell() == 57
        files.rename(files.join(inner, "x"), files.join(inner, "y"))
        assert files.list_folder(inner) == ["y"]
        files.remove(files.join(inner, "y"))
        assert not files.exists(files.join(inner, "y"))


def test_a_rename_whose_answer_was_lost_has_succeeded(bucket, monkeypatch):
    files.write_text(f"{bucket}/a", "text")
    rename, lost = tf.io.gfile.rename, [True]

    def lose(*args, **kwargs):
        rename(*args, **kwargs)
        if lost:
            lost.pop()
            raise tf.errors.DeadlineExceededError(None, None, "no answer")

    monkeypatch.setattr(tf.io.gfile, "rename", lose)
    files.rename(f"{bucket}/a", f"{bucket}/b")
    assert files.read_text(f"{bucket}/b") == "text"
    with pytest.raises(FileNotFoundError):
        files.rename(f"{bucket}/a", f"{bucket}/c")


def test_waits_grow_and_end(monkeypatch):
    waits = []
    monkeypatch.setattr(calls, "WAITS", (1, 2, 3))
    monkeypatch.setattr(calls.time, "sleep", waits.append)

    def fail(number):
        raise OSError(number, "gone")

    for number, expected in ((errno.ESTALE, [1, 2, 3]), (errno.ENOSPC, [])):
        waits.clear()
        with pytest.raises(OSError, match="gone"):
            calls.repeated(fail, number)
        assert waits == expected


def test_a_write_that_the_network_refuses_is_no_wrong_flag(bucket, monkeypatch):
    flaky.make_flaky(monkeypatch, lambda: True)
    with pytest.raises(DataError, match="x: cannot be written: bucket is away"):
        files.write_text(f"{bucket}/x", "text")
