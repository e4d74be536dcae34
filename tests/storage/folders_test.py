"""Folders appear completely or not at all, on this machine and in a bucket."""

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import signal
import textwrap

import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, folders


@pytest.fixture(params=["file://", "ram://"])
def remote(request, tmp_path, bucket):
    """A folder that does not exist yet, on the route that `gs://` takes."""
    return (
        f"{bucket}/model" if request.param == "ram://" else f"file://{tmp_path}/model"
    )


@pytest.fixture
def path(place):
    """A folder that does not exist yet."""
    return f"{place}/model"


def write(path, content=b"weights", **kwargs):
    with folders.writing(path, **kwargs) as out:
        out.write("model.safetensors", content)
        out.write_json("config.json", {"a": 1})
        out.write("assets/vocabulary/words", b"x")
        out.write_manifest()


def test_a_folder_is_complete_and_verified(path):
    assert not folders.is_complete(path)
    write(path)
    assert folders.is_complete(path)
    names = {"model.safetensors", "config.json", "assets/vocabulary/words"}
    assert {*files.tree(path)} == names | {"manifest.json"}
    assert folders.verify(path) == names
    weights = files.join(path, "model.safetensors")
    assert files.read_bytes(weights) == b"weights"
    listed = files.read_json(files.join(path, "manifest.json"))["files"]
    digest = hashlib.sha256(b"weights").hexdigest()
    assert listed["model.safetensors"] == {"size": 7, "sha256": digest}
    files.write_bytes(weights, b"WEIGHTS")
    with pytest.raises(DataError, match=r"model.safetensors: is not the file"):
        folders.verify(path)
    # Files that others wrote, as TensorFlow does, are listed, too.
    with folders.writing(f"{path}2") as out:
        inner = pathlib.Path(out.path, "variables")
        inner.mkdir()
        (inner / "data").write_bytes(b"from TensorFlow")
        out.write_manifest()
    assert folders.verify(f"{path}2") == {"variables/data"}


def test_nothing_appears_if_writing_fails(path):
    with pytest.raises(KeyboardInterrupt), folders.writing(path) as out:
        out.write("model.safetensors", b"half")
        raise KeyboardInterrupt
    assert not files.exists(path)
    assert files.list_folder(os.path.dirname(path)) == []
    assert not folders.is_complete(path)


def test_a_folder_is_replaced_only_if_asked(path):
    write(path)
    with pytest.raises(UsageError, match="model: exists already"):
        write(path, b"new")
    assert files.read_bytes(files.join(path, "model.safetensors")) == b"weights"
    with folders.writing(path, overwrite=True) as out:
        out.write("model.safetensors", b"new")
        out.write_manifest()
    # What only the old folder had is gone.
    assert files.tree(path) == ["manifest.json", "model.safetensors"]
    assert folders.verify(path) == {"model.safetensors"}
    with folders.writing(f"{path}2") as out:
        out.write("run.json", b"{}")
    with pytest.raises(UsageError, match="contains run.json"):
        write(f"{path}2", overwrite=True)
    write(f"{path}2", overwrite=True, own_names={"run.json"})
    assert "run.json" not in files.tree(f"{path}2")


def test_foreign_files_are_never_deleted(path):
    write(path)
    files.write_text(files.join(path, "thesis.txt"), "years of work")
    for _ in range(2):
        with pytest.raises(UsageError, match="contains thesis.txt"):
            write(path, b"new", overwrite=True)
        # As if an upload had been interrupted.
        files.write_text(files.join(path, "INCOMPLETE"), '["config.json"]')
    assert files.read_text(files.join(path, "thesis.txt")) == "years of work"
    assert files.read_bytes(files.join(path, "model.safetensors")) == b"weights"


def test_a_failed_upload_leaves_no_manifest_and_can_be_repeated(remote, monkeypatch):
    copy, copied = tf.io.gfile.copy, []

    def fail_at_the_third(source, target, overwrite=False):
        if len(copied) == 2:
            raise tf.errors.UnavailableError(None, None, "bucket is away")
        copied.append(target)
        copy(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "copy", fail_at_the_third)
    with pytest.raises(DataError, match="model: cannot be written: bucket is away"):
        write(remote)
    monkeypatch.undo()
    assert len(copied) == 2
    assert files.exists(files.join(remote, "config.json"))
    assert not files.exists(files.join(remote, "manifest.json"))
    assert not folders.is_complete(remote)
    with pytest.raises(DataError, match="incomplete"):
        folders.verify(remote)
    write(remote)  # without `overwrite`
    assert folders.is_complete(remote)
    assert "model.safetensors" in folders.verify(remote)


def test_wherever_a_replacement_dies_a_whole_folder_is_left(remote, monkeypatch):
    names = ("copy", "remove", "rename", "rmtree")
    real = {name: getattr(tf.io.gfile, name) for name in names}

    def fail_from(count):
        """Lets `count` calls that change a file pass, and none after them."""
        calls = []

        def change(name, *args, **kwargs):
            if len(calls) == count:
                raise KeyboardInterrupt
            calls.append(name)
            return real[name](*args, **kwargs)

        for name in names:
            monkeypatch.setattr(tf.io.gfile, name, functools.partial(change, name))
        return calls

    def whole():
        found = [remote, *folders.leftovers(remote)]
        found = [path for path in found if files.exists(f"{path}/manifest.json")]
        return [path for path in found if path != remote or folders.is_complete(path)]

    write(remote, b"old", overwrite=True)
    calls = fail_from(-1)
    write(remote, b"old", overwrite=True)
    assert len(calls) > 10
    for count in range(len(calls)):
        fail_from(count)
        with pytest.raises(KeyboardInterrupt):
            write(remote, b"new", overwrite=True)
        assert any(len(folders.verify(path)) == 3 for path in whole())
        fail_from(-1)
        folders.tidy(remote)
        assert len(folders.verify(remote)) == 3
        assert not folders.leftovers(remote)
        # Without a lock that would allow to tidy: it can be replaced all the same.
        fail_from(count)
        with contextlib.suppress(KeyboardInterrupt):
            write(remote, b"new", overwrite=True)
        fail_from(-1)
        write(remote, b"old", overwrite=True)
        assert len(folders.verify(remote)) == 3
        folders.tidy(remote)


def test_of_two_writers_the_first_to_finish_wins(path):
    with (
        pytest.raises(UsageError, match="model: exists already: another process"),
        folders.writing(path) as slow,
    ):
        slow.write("model.safetensors", b"slow")
        write(path, b"fast")
    assert files.read_bytes(files.join(path, "model.safetensors")) == b"fast"
    assert folders.is_complete(path)
    assert len(folders.verify(path)) == 3
    assert files.list_folder(os.path.dirname(path)) == ["model"]


def test_of_two_uploads_the_later_one_goes_on(remote, monkeypatch):
    copy = tf.io.gfile.copy

    def meet_another(source, target, overwrite=False):
        copy(source, target, overwrite)
        monkeypatch.undo()
        write(remote, b"later")

    monkeypatch.setattr(tf.io.gfile, "copy", meet_another)
    with pytest.raises(UsageError, match="model: exists already: another process"):
        write(remote, b"earlier")
    assert files.read_bytes(files.join(remote, "model.safetensors")) == b"later"
    assert folders.is_complete(remote)
    assert len(folders.verify(remote)) == 3


def test_the_file_that_readers_wait_for_is_uploaded_last(remote, monkeypatch):
    copy, copied = tf.io.gfile.copy, []

    def note(source, target, overwrite=False):
        copied.append(os.path.basename(target))
        copy(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "copy", note)
    with folders.writing(remote, last="a_model.pb") as out:
        for name in ("a_model.pb", "variables/v", "assets/w"):
            out.write(name, b"1")
    assert sorted(copied) == ["a_model.pb", "v", "w"]
    assert copied[-1] == "a_model.pb"


def test_a_file_that_is_replaced_stays_whole_until_then(remote, monkeypatch):
    files.make_folder(remote)
    target = files.join(remote, "metrics.jsonl")
    files.write_text(target, "the old one")

    def add():
        with folders.adding(remote) as out:
            out.write("metrics.jsonl", b"new")

    def half(source, target, overwrite=False):
        files.write_text(target, "n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tf.io.gfile, "copy", half)
        add()
    assert files.read_text(target) == "the old one"
    left = [name for name in files.list_folder(remote) if name != "metrics.jsonl"]
    assert len(left) == 1 and files.is_leftover(left[0])
    add()
    assert files.read_text(target) == "new"


@pytest.mark.parametrize("count", range(7))
def test_a_replacement_that_is_killed(tmp_path, count, run_python):
    """Kills at each change of names; between two of them there is no folder."""
    code = """
        import os, shutil, signal, sys
        from albert_tf.storage import folders
        left = int(sys.argv[2])
        def dying(function):
            def call(*args, **kwargs):
                global left
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return function(*args, **kwargs)
            return call
        os.rename, os.replace = dying(os.rename), dying(os.replace)
        os.rmdir, os.unlink = dying(os.rmdir), dying(os.unlink)
        with folders.writing(sys.argv[1], overwrite=True) as out:
            out.write("model.safetensors", b"new")
            out.write_manifest()
    """
    path = tmp_path / "model"
    write(path)
    ended = run_python("-c", textwrap.dedent(code), path, count)
    assert ended.returncode == -signal.SIGKILL
    folders.tidy(path)
    assert len(folders.verify(path)) == (3 if count < 2 else 1)
    assert os.listdir(tmp_path) == ["model"]


def test_what_may_be_the_only_copy_is_kept(tmp_path):
    write(tmp_path / ".model.old-0123abcd")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/.lock").write_text("")
    folders.tidy(tmp_path / "model")
    assert folders.verify(tmp_path / ".model.old-0123abcd")


def test_everything_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_rename(source, target):
        done.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    write(tmp_path / "model")
    at = done.index("renamed")
    assert {"model.safetensors", "manifest.json", "words", "vocabulary"} <= {*done[:at]}
    assert done[at + 1 :] == [tmp_path.name]
    del done[:]
    files.write_text(tmp_path / "file", "x")
    assert done[1:] == ["renamed", tmp_path.name]


def test_a_name_that_may_not_reach_the_disk_is_said(tmp_path, monkeypatch):
    write(tmp_path / "model")
    fsync = os.fsync

    def fail(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DataError, match="cannot be written: Input/output error"):
        write(tmp_path / "model", b"new", overwrite=True)
    assert (tmp_path / "model/model.safetensors").read_bytes() == b"new"
    with pytest.raises(DataError, match="cannot be written: Input/output error"):
        files.write_text(tmp_path / "file", "x")


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", '{"files": {"x": 1}}', '{"files": {"../x": {"size": 1, "sha256": ""}}}'],
)
def test_a_damaged_manifest(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=r"manifest.json: (not a|names a)"):
        folders.verify(tmp_path)


def test_a_full_disk_is_told_by_the_name_of_the_folder(tmp_path):
    path = tmp_path / "model"
    for error in (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError("write failed: errno = 28, message = 'No space left on device'"),
        tf.errors.ResourceExhaustedError(None, None, "x; No space left on device"),
    ):
        message = "model: cannot be written: No space left on device; free some space"
        with pytest.raises(DataError, match=message), folders.writing(path):
            raise error
    with (
        pytest.raises(DataError, match="/model/x: fails"),
        folders.writing(path) as out,
    ):
        raise DataError(f"{out.path}/x: fails")
    message = "/model: cannot be written: No such file"
    with pytest.raises(UsageError, match=message), folders.writing(path) as out:
        os.rename(f"{out.path}/absent", f"{out.path}/x")
    assert not list(tmp_path.iterdir())
