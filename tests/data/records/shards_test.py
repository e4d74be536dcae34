"""Which files a prefix, a folder or a pattern stands for."""

import pathlib

import pytest

from albert_tf.data.records import shards
from albert_tf.errors import DataError


def _touch(folder, *names):
    for name in names:
        (folder / name).write_bytes(b"")


def _names(pattern):
    return [pathlib.Path(path).name for path in shards.find_shards(pattern)]


def _set(prefix, total, without=()):
    return [
        f"{prefix}-{k:05d}-of-{total:05d}.tfrecord"
        for k in range(total)
        if k not in without
    ]


def test_a_folder_without_its_held_out_part(tmp_path):
    _touch(tmp_path, *_set("w", 2), *_set("w-eval", 1), "w.tfrecord.idx", "x.txt")
    assert _names(str(tmp_path)) == _set("w", 2)
    assert _names(f"{tmp_path}/w-eval") == _set("w-eval", 1)
    for path in _set("w", 2):
        (tmp_path / path).unlink()
    assert _names(str(tmp_path)) == _set("w-eval", 1)  # nothing else is there


def test_a_prefix_is_no_pattern(tmp_path):
    _touch(tmp_path, *_set("w", 2), *_set("w-20", 1), *_set("[w]", 1))
    assert _names(f"{tmp_path}/w") == _set("w", 2)
    assert _names(f"{tmp_path}/[w]") == _set("[w]", 1)
    with pytest.raises(DataError, match="no record file matches"):
        _names(f"{tmp_path}/w-2")


def test_what_stands_for_records_and_what_for_tables(tmp_path):
    (tmp_path / "tables").mkdir()
    _touch(tmp_path, *_set("w", 1), "w-00000-of-00001.tfrecord.idx", "a,b.tsv")
    for name in ("w", "w*", "*-of-*", "w-00000-of-00001.tfrecord", "gone.tfrecord", ""):
        assert shards.are_records(f"{tmp_path}/{name}"), name
    for name in ("a,b.tsv", "a*", "tables"):
        assert not shards.are_records(f"{tmp_path}/{name}"), name
    assert not shards.are_records("")
    with pytest.raises(DataError, match="ww: no such file or folder, and no record fi"):
        shards.are_records(f"{tmp_path}/ww")


def test_missing_shards_are_noticed(tmp_path):
    _touch(tmp_path, *_set("w", 4, without=[2]))
    for pattern in (f"{tmp_path}/w", str(tmp_path)):
        with pytest.raises(DataError, match="w: shard 2 of 4 is missing .3 exist"):
            _names(pattern)
    assert len(_names(f"{tmp_path}/w-*.tfrecord")) == 3  # those, on purpose


def test_shards_of_two_sets_are_not_mixed(tmp_path):
    _touch(tmp_path, *_set("w", 2), *_set("w", 3))
    with pytest.raises(DataError, match="w: shards of several .* with 2 and 3 shards"):
        _names(f"{tmp_path}/w")


def test_an_unfinished_run_is_refused(tmp_path):
    _touch(tmp_path, *_set("w", 2), *_set("w-eval", 1))
    (tmp_path / "w.partial").mkdir()
    for prefix in ("w", "w-eval"):
        with pytest.raises(DataError, match="belongs to an unfinished run"):
            _names(f"{tmp_path}/{prefix}")
