"""Answers are joined in order, and a run continues only its own work."""

import pathlib

import pytest

from albert_tf.errors import UsageError
from albert_tf.inference.pipeline import outputs
from albert_tf.inference.pipeline.outputs import (
    Block,
    OutputFiles,
    plan_shards,
    write_shard,
)


def _blocks(names, sizes):
    blocks, start = [], 0
    for k, size in enumerate(sizes):
        path = names.answers(0, k)
        with open(path, "w") as file:
            file.writelines(f"{start + i}\n" for i in range(size))
        blocks.append(Block(names.content(0, k), path, start, size))
        start += size
    return blocks


@pytest.mark.parametrize("count", [1, 3, 7])
def test_shards_have_all_rows_in_order(tmp_path, count):
    names = OutputFiles(f"{tmp_path}/out/a", count)
    names.prepare({"k": (1,)}, overwrite=False)
    plan = plan_shards(names, _blocks(names, [3, 1, 4]))
    for shard in plan:
        write_shard(shard)
    paths = names.finish(len(plan))
    folder = f"{tmp_path}/out"
    assert paths == [f"{folder}/a-{k:05d}-of-{count:05d}.jsonl" for k in range(count)]
    texts = [pathlib.Path(path).read_text().split() for path in paths]
    assert sum(texts, []) == [str(k) for k in range(8)]
    assert max(map(len, texts)) - min(map(len, texts)) <= 1
    assert len(list((tmp_path / "out").iterdir())) == count


def test_more_shards_than_rows(tmp_path):
    names = OutputFiles(f"{tmp_path}/a", 4)
    names.prepare({}, overwrite=False)
    with pytest.raises(UsageError, match="num_shards: 4 files, but only 3 texts"):
        plan_shards(names, _blocks(names, [3]))


def test_only_the_same_run_goes_on(tmp_path):
    names = OutputFiles(f"{tmp_path}/a.jsonl", None)
    names.prepare({"batch_size": 1}, overwrite=False)
    answers = pathlib.Path(names.answers(0, 0))
    answers.touch()
    names.prepare({"batch_size": 1}, overwrite=False)
    assert answers.exists()
    with pytest.raises(UsageError, match="a.partial holds the work of an unfinished"):
        names.prepare({"batch_size": 2}, overwrite=False)
    names.prepare({"batch_size": 2}, overwrite=True)
    assert not answers.exists()


def test_existing_answers_are_replaced_at_the_end(tmp_path):
    old = tmp_path / "a-00000-of-00002.jsonl"
    old.write_text("old")
    names = OutputFiles(f"{tmp_path}/a", 1)
    with pytest.raises(UsageError, match="00000-of-00002.jsonl exists; give --over"):
        names.prepare({}, overwrite=False)
    names.prepare({}, overwrite=True)
    (shard,) = plan_shards(names, _blocks(names, [2]))
    write_shard(shard)
    assert old.exists()
    assert names.finish(1) == [f"{tmp_path}/a-00000-of-00001.jsonl"]
    assert not old.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "folder beside settings"])
def test_what_no_run_wrote_is_kept(tmp_path, kind):
    names = OutputFiles(f"{tmp_path}/a", 1)
    if kind == "folder beside settings":
        names.prepare({"batch_size": 1}, overwrite=False)
    other = tmp_path / "a.partial/thesis"
    other.parent.mkdir(exist_ok=True)
    other.touch() if kind == "file" else other.mkdir()
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="a.partial is not .* holds thesis"):
            names.prepare({"batch_size": 2}, overwrite)
    assert other.exists()


def test_a_folder_without_settings_is_kept(tmp_path):
    answers = tmp_path / "a.partial/answers-000000-000000.jsonl"
    answers.parent.mkdir()
    # A run that was killed while it wrote its settings leaves this.
    (tmp_path / "a.partial/.settings.json.0123abcd.partial").touch()
    names = OutputFiles(f"{tmp_path}/a", 1)
    answers.touch()
    with pytest.raises(UsageError, match="holds answers-000000-000000.jsonl"):
        names.prepare({}, overwrite=False)
    answers.unlink()
    names.prepare({}, overwrite=False)
    assert [path.name for path in answers.parent.iterdir()] == ["settings.json"]


class _KilledError(Exception):
    pass


def _kill_after(monkeypatch, operation, calls, within):
    """Lets one more call of a file operation fail than `calls` succeed."""
    real, left = getattr(outputs.files, operation), iter(range(calls))

    def counted(path, *arguments):
        if within in path and next(left, None) is None:
            raise _KilledError
        return real(path, *arguments)

    monkeypatch.setattr(outputs.files, operation, counted)


def _run(names, overwrite=False):
    names.prepare({"batch_size": 1}, overwrite)
    plan = plan_shards(names, _blocks(names, [3, 1]))
    for shard in plan:
        write_shard(shard)
    return names.finish(len(plan))


def _contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


_WHOLE = {"a-00000-of-00002.jsonl": "0\n1\n", "a-00001-of-00002.jsonl": "2\n3\n"}


@pytest.mark.parametrize("is_replacing", [False, True])
def test_a_run_killed_between_two_shards_goes_on(tmp_path, monkeypatch, is_replacing):
    old = tmp_path / "a-00000-of-00001.jsonl"
    if is_replacing:
        old.write_text("old")
    names = OutputFiles(f"{tmp_path}/a", 2)
    with monkeypatch.context() as patched:
        _kill_after(patched, "rename", 1, "/shard-")
        with pytest.raises(_KilledError):
            _run(names, overwrite=is_replacing)
    placed = [path.name for path in tmp_path.glob("a-*-of-00002.jsonl")]
    assert placed == ["a-00000-of-00002.jsonl"]
    assert old.exists() == is_replacing
    with pytest.raises(UsageError, match="a-00000-of-0000[12].jsonl exists"):
        names.prepare({"batch_size": 2}, overwrite=False)
    _run(names, overwrite=is_replacing)
    assert _contents(tmp_path) == _WHOLE


def test_answers_that_another_run_wrote_are_in_the_way(tmp_path):
    names = OutputFiles(f"{tmp_path}/a", 2)
    names.prepare({"batch_size": 1}, overwrite=False)
    (tmp_path / "a-00000-of-00002.jsonl").write_text("other")
    with pytest.raises(UsageError, match="00000-of-00002.jsonl exists"):
        _run(names)


@pytest.mark.parametrize("calls", range(6))
def test_a_run_killed_while_it_clears_up_goes_on(tmp_path, monkeypatch, calls):
    names = OutputFiles(f"{tmp_path}/a", 2)
    names.prepare({"batch_size": 1}, overwrite=False)
    for name in ("source-000000.json", "rows-000000-000000.json"):
        (tmp_path / "a.partial" / name).touch()
    with monkeypatch.context() as patched:
        _kill_after(patched, "remove", calls, "")
        with pytest.raises(_KilledError):
            _run(names)
    left = {path.name for path in (tmp_path / "a.partial").iterdir()}
    assert "settings.json" in left
    if "source-000000.json" in left:
        assert "rows-000000-000000.json" in left
    # Without the names of its shards, the run no longer knows that they are its own.
    _run(names, overwrite=left == {"settings.json"})
    assert _contents(tmp_path) == _WHOLE
