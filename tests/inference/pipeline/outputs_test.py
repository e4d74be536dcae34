"""Answers are joined in order, and a run continues only its own work."""

import pathlib

import pytest

from albert_tf.errors import UsageError
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
    (tmp_path / "a.partial/answers").touch()
    names.prepare({"batch_size": 1}, overwrite=False)
    assert (tmp_path / "a.partial/answers").exists()
    with pytest.raises(UsageError, match="a.partial holds the work of an unfinished"):
        names.prepare({"batch_size": 2}, overwrite=False)
    names.prepare({"batch_size": 2}, overwrite=True)
    assert not (tmp_path / "a.partial/answers").exists()


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
