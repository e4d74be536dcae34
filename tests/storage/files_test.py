"""Whole files, on disk and under a scheme (TensorFlow's in-memory `ram://`)."""

import errno
import os
from unittest import mock

import pytest

from albert_tf.data.records import shards
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, streams


def test_text_is_utf8(place):
    path = files.join(place, "text.txt")
    with pytest.raises(DataError, match="text.txt: cannot be read: ") as error:
        files.read_text(path)
    assert "\n" not in str(error.value)
    assert not files.exists(path)
    files.write_text(path, "▁über\n")
    assert files.read_bytes(path) == "▁über\n".encode()
    assert files.read_text(path) == "▁über\n"
    files.write_bytes(path, b"\xef\xbb\xbfx")
    assert files.read_text(path) == "x"
    files.write_bytes(path, b"ab\xff")
    with pytest.raises(DataError, match=r"text.txt: not UTF-8 text \(byte 2\)"):
        files.read_text(path)


def test_a_file_is_replaced_only_if_allowed(place):
    path = files.join(place, "a.json")
    files.write_text(path, "first")
    with pytest.raises(UsageError, match="a.json: exists already"):
        files.write_text(path, "second", overwrite=False)
    assert files.read_text(path) == "first"
    files.write_text(path, "second")
    assert files.read_text(path) == "second"
    assert files.list_folder(place) == ["a.json"]


def test_what_cannot_be_written_is_known_before(place):
    path = files.join(place, "a.json")
    for new in ("", path, "new.json", "ram://none/new.json"):
        files.check_new("output_file", new, overwrite=False)
    files.write_text(path, "first")
    files.check_new("output_file", path, overwrite=True)
    with pytest.raises(UsageError, match="x: .*a.json exists already; give --overwr"):
        files.check_new("x", path, overwrite=False)
    with pytest.raises(UsageError, match="x: no/x.json: there is no folder no"):
        files.check_new("x", "no/x.json", overwrite=True)


def test_folders(place):
    inner = files.join(place, "a", "b")
    files.make_folder(inner)
    files.make_folder(inner)
    assert files.is_folder(inner)
    files.write_text(files.join(inner, "z"), "")
    files.write_text(files.join(inner, "y"), "")
    assert files.list_folder(inner) == ["y", "z"]
    assert files.list_folder(files.join(place, "a")) == ["b"]
    assert not files.is_folder(files.join(inner, "z"))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda at: files.write_text(at / "none/x", ""), "written: No such file"),
        (lambda at: files.write_text(at / "folder", ""), "written: Is a directory"),
        (lambda at: files.make_folder(at / "file"), "created: a file is in .*choose"),
        (lambda at: files.make_folder(at / "file/far/b"), "created: a file is in"),
    ],
)
def test_writing_where_it_cannot_be(tmp_path, write, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=f"cannot be {message}"):
        write(tmp_path)
    # Nothing half-written is left.
    assert files.list_folder(tmp_path) == ["file", "folder"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        # A full disk is not the user's mistake, so the exit code is 1.
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), DataError),
    ],
)
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path, monkeypatch, error, expected
):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=error))
    with pytest.raises(expected, match="^$|a.txt: cannot be written: No space left"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_read_json(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": [1]}')
    assert files.read_json(path) == {"a": [1]}
    for text, message in (
        ("[1]", "x.json: expected a JSON object, received list"),
        ('{"a"', "x.json: not JSON: "),
        ("[" * 200_000, "x.json: not JSON: "),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            files.read_json(path)


@pytest.mark.parametrize("path", ["s3://bucket/x", "hf://user/model"])
def test_an_unknown_scheme_is_refused_by_name(path):
    scheme = path.partition("//")[0]
    calls = (
        files.exists,
        files.is_folder,
        files.list_folder,
        files.make_folder,
        files.read_bytes,
        files.open_binary,
        streams.glob,
        streams.status,
        lambda path: files.write_bytes(path, b""),
    )
    for call in calls:
        with pytest.raises(UsageError, match=rf"{path}: {scheme}// is not supp.*gs://"):
            call(path)


@pytest.mark.parametrize("name", ["run[1]", "run*", "a?b", "{x}", "a b", "ünï", "a\\b"])
def test_patterns_in_a_folder_of_any_name(place, name):
    inner = files.join(place, name)
    for path in (inner, files.join(place, "run1")):
        files.make_folder(path)
        for file in ("t-00000-of-00001.tfrecord", "x.txt"):
            files.write_text(files.join(path, file), "")
    record = files.join(inner, "t-00000-of-00001.tfrecord")
    assert shards.find_shards(files.join(inner, "t")) == [record]
    assert shards.find_shards(inner) == [record]
    assert streams.glob(record) == [record]
    assert files.join(inner, "x.txt") in streams.glob(
        files.join(place, "*", "[xy].t?t")
    )
    assert record in streams.glob(files.join(place, "**", "*.tfrecord"))


def test_only_complete_checkpoints_are_found_the_latest_first(tmp_path):
    assert streams.find_checkpoints(tmp_path / "absent") == {}
    for name in ("step-9.index", "step-100.index", "step-20.data-00000-of-00001"):
        (tmp_path / name).touch()
    (tmp_path / "step-300_temp").mkdir()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "step-9"')
    found = streams.find_checkpoints(tmp_path)
    assert list(found) == [100, 9]
    assert found[100] == str(tmp_path / "step-100")
