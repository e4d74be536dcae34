"""Two processes never write one run folder, and a killed one does not block it."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from unittest import mock

import pytest

from albert_tf.errors import UsageError
from albert_tf.storage import files, lock


def owner(place):
    return json.loads(files.read_text(files.join(place, lock.LOCK_FILE)))


def leave(place, **changes):
    """Writes the lock of another process."""
    with lock.locked(place):
        text = json.dumps({**owner(place), "id": "another", **changes})
    files.write_text(files.join(place, lock.LOCK_FILE), text)


def test_a_second_process_is_refused_until_the_first_ends(place):
    with lock.locked(place):
        assert owner(place)["process"] == os.getpid()
        message = f"process {os.getpid()} on host .* is writing to this folder"
        with pytest.raises(UsageError, match=message), lock.locked(place):
            pass
        assert owner(place)["process"] == os.getpid()
    assert files.list_folder(place) == []
    with lock.locked(place):
        pass


def test_the_lock_of_a_dead_process_is_taken_over(place):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    leave(place, process=process.pid)
    with lock.locked(place):
        assert owner(place)["process"] == os.getpid()
    # Its number may be in use again.
    leave(place, process=os.getpid(), started="1")
    with lock.locked(place):
        assert owner(place)["started"] != "1"
    # The lock may be damaged.
    files.write_text(files.join(place, lock.LOCK_FILE), "")
    with lock.locked(place):
        assert owner(place)["process"] == os.getpid()


def test_the_lock_of_another_host(place, monkeypatch):
    leave(place, host="far-away", process=1)
    message = "process 1 on host far-away"
    with pytest.raises(UsageError, match=message), lock.locked(place):
        pass
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)  # not renewed since
    with lock.locked(place):
        assert owner(place)["host"] != "far-away"


def test_a_lock_is_renewed(place, monkeypatch):
    renewed = []
    monkeypatch.setattr(lock, "_RENEWED_AFTER", 0.01)
    write = files.write_text
    monkeypatch.setattr(
        files, "write_text", lambda *args: (renewed.append(args), write(*args))
    )
    with lock.locked(place):
        while len(renewed) < 3:
            time.sleep(0.01)
        renewed_by = owner(place)["id"]
    assert all(renewed_by in text for _, text in renewed)


def test_a_lock_that_was_taken_over_is_left_alone(place):
    with lock.locked(place):
        text = json.dumps({**owner(place), "id": "another"})
        files.write_text(files.join(place, lock.LOCK_FILE), text)
    assert owner(place)["id"] == "another"


def test_a_lock_that_was_just_created(tmp_path, monkeypatch):
    # The other one has created its lock and not yet written to it.
    path = tmp_path / lock.LOCK_FILE
    text = json.dumps({"host": socket.gethostname(), "process": os.getpid()})
    path.touch()
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: path.write_text(text))
    with pytest.raises(UsageError, match="is writing"), lock.locked(tmp_path):
        pass
    path.unlink()
    # It comes after the question whether there is one.
    monkeypatch.setattr(lock, "_owner_of", lambda path: {"process": 7, "host": "x"})
    monkeypatch.setattr(files, "exists", lambda path: False)
    path.write_text(text)
    with pytest.raises(UsageError, match="process 7"), lock.locked(tmp_path):
        pass
    assert path.read_text() == text


def test_a_file_system_that_cannot_sync(tmp_path, monkeypatch):
    refused = OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=refused))
    files.write_text(tmp_path / "x", "text")
    assert files.read_text(tmp_path / "x") == "text"
