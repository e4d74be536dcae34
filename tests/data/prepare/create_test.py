"""The whole build: process counts, resuming, existing output, a full disk."""

import errno
import json
import pathlib
import signal
import subprocess
import sys

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare import blocks, create
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from tests.data.synthetic_records import parse

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
TEXT = (GOLDEN / "tf1_data/input.txt").read_text()
MODEL = str(GOLDEN / "tokenization/spiece.model")


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory):
    """Several files, some small ones that share a group, of 2.4 MB in all."""
    folder = tmp_path_factory.mktemp("corpus")
    for k in range(6):
        text = TEXT.replace("the", f"the {k}")
        (folder / f"{k}.txt").write_text((text + "\n") * (30 if k % 2 else 1))
    return str(folder / "*.txt")


def _config(**settings):
    settings = {"masking": "dynamic", "eval_fraction": 0.1} | settings
    return RecordConfig(
        pairs=PairConfig("clean", 128, 0.1, 5),
        mask=MaskingConfig(max_predictions_per_seq=19),
        **settings,
    )


def _make(path, output, tokenizer, config=None, **settings):
    return create.create_pretraining_data(
        Corpus(path, "lines"),
        str(output),
        tokenizer,
        config or _config(),
        progress=False,
        **({"num_shards": 3, "num_processes": 1} | settings),
    )


def _content(folder):
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.suffix in (".tfrecord", ".idx")
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory, corpus_path, tokenizer):
    folder = tmp_path_factory.mktemp("expected")
    card = _make(corpus_path, folder / "t", tokenizer)
    return card, _content(folder)


def test_files_are_complete(expected, corpus_path, tokenizer, tmp_path):
    card, content = expected
    assert list(content) == [
        f"t-{name}.tfrecord{suffix}"
        for name in (
            "00000-of-00003",
            "00001-of-00003",
            "00002-of-00003",
            "eval-00000-of-00001",
        )
        for suffix in ("", ".idx")
    ]
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    train = tfrecord.RecordSet(str(tmp_path / "t"))
    assert len(train) == card["splits"]["train"]["examples"] > 1000
    assert len(train.paths) == 3
    sizes = [shard["records"] for shard in card["splits"]["train"]["shards"]]
    assert max(sizes) - min(sizes) <= 1
    assert abs(card["examples"]["label_1_rate"] - 0.5) < 0.005
    assert card["corpus"]["duplicate_documents"] > 1000
    assert card["inputs"][0]["sha256"] and card["tokenizer"]["sha256"]
    assert 0.13 < card["masks"]["mask_rate"] < 0.16
    assert sum(card["examples"]["length_histogram"]) == card["examples"]["count"]


@pytest.mark.parametrize("processes", [2, 4])
def test_any_number_of_processes_makes_the_same_bytes(
    expected, corpus_path, tokenizer, tmp_path, processes
):
    card = _make(corpus_path, tmp_path / "t", tokenizer, num_processes=processes)
    assert _content(tmp_path) == expected[1]
    assert card == expected[0]
    assert json.loads((tmp_path / "dataset.json").read_text()) == card
    assert (tmp_path / "length_histogram.png").read_bytes().startswith(b"\x89PNG")
    assert "| Documents |" in (tmp_path / "dataset.md").read_text()
    assert not (tmp_path / "t.partial").exists()


_KILLED = """
import os, signal, sys
from albert_tf.data.prepare import parts
sys.path.insert(0, {tests!r})
import create_test
made = parts.make_part
def die(*args):
    if len(os.listdir({partial!r})) > 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return made(*args)
parts.make_part = die
from albert_tf.text.load import load_tokenizer
tokenizer = load_tokenizer(create_test.MODEL)
create_test._make({corpus!r}, {output!r}, tokenizer)
"""


def test_a_killed_run_is_taken_up_again(
    expected, corpus_path, tokenizer, tmp_path, monkeypatch
):
    partial = tmp_path / "t.partial"
    script = _KILLED.format(
        tests=str(ROOT / "tests/data/prepare"),
        partial=str(partial),
        corpus=corpus_path,
        output=str(tmp_path / "t"),
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.partial"]
    kept = {p.name: p.stat().st_mtime_ns for p in partial.glob("block*")}
    assert len(kept) == 2
    with pytest.raises(UsageError, match="eval_fraction was 0.1, is 0.2; re"):
        _make(corpus_path, tmp_path / "t", tokenizer, _config(eval_fraction=0.2))
    worked = []
    process = blocks.process_block
    monkeypatch.setattr(
        blocks,
        "process_block",
        lambda block, *rest: worked.append(block[0][:2]) or process(block, *rest),
    )
    card = _make(corpus_path, tmp_path / "t", tokenizer)
    assert _content(tmp_path) == expected[1]
    assert card == expected[0]
    assert (0, 0) not in worked and worked


_KILLED_WRITING = """
import os, signal, sys
from albert_tf.data.records import tfrecord
sys.path.insert(0, {tests!r})
import create_test
frame, framed = tfrecord.frame, []
def die(payload):
    framed.append(payload)
    if len(framed) > {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    return frame(payload)
tfrecord.frame = die
from albert_tf.text.load import load_tokenizer
tokenizer = load_tokenizer(create_test.MODEL)
create_test._make({corpus!r}, {output!r}, tokenizer)
"""


def test_a_run_killed_while_it_writes_shards(
    expected, corpus_path, tokenizer, tmp_path
):
    numbers = [shard["records"] for shard in expected[0]["splits"]["train"]["shards"]]
    script = _KILLED_WRITING.format(
        tests=str(ROOT / "tests/data/prepare"),
        after=numbers[0] + numbers[1] // 2,
        corpus=corpus_path,
        output=str(tmp_path / "t"),
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    found = _content(tmp_path)
    assert found.items() <= expected[1].items() and found
    card = _make(corpus_path, tmp_path / "t", tokenizer)
    assert _content(tmp_path) == expected[1] and card == expected[0]
    assert not list(tmp_path.glob(".*.partial"))


def test_a_changed_input_is_noticed_when_resuming(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    monkeypatch.setattr(create, "write_shard", _raise(OSError(errno.EIO, "gone")))
    with pytest.raises(OSError, match="gone"):
        _make(str(path), tmp_path / "t", tokenizer)
    monkeypatch.undo()
    path.write_text(TEXT.replace("harbour", "habrour"))  # of the same size
    _make(str(path), tmp_path / "t", tokenizer)
    _make(str(path), tmp_path / "fresh/t", tokenizer)
    assert _content(tmp_path) == _content(tmp_path / "fresh")


def _raise(error):
    def fail(*args, **kwargs):
        raise error

    return fail


def test_existing_output_is_kept_unless_asked(tokenizer, tmp_path):
    source = str(GOLDEN / "tf1_data/input.txt")
    _make(source, tmp_path / "t", tokenizer)
    before = _content(tmp_path)
    with pytest.raises(UsageError, match=r"-00000-of-00003.tfrecord exists .*--over"):
        _make(source, tmp_path / "t", tokenizer)
    with pytest.raises(UsageError, match="dataset.json is the card of another"):
        _make(source, tmp_path / "other", tokenizer)
    assert _content(tmp_path) == before
    _make(source, tmp_path / "t", tokenizer, overwrite=True, num_shards=2)
    assert len(_content(tmp_path)) == 6


def test_another_number_of_shards_after_a_failure(tokenizer, tmp_path, monkeypatch):
    source = str(GOLDEN / "tf1_data/input.txt")
    real = tfrecord.write_shard

    def fail_at_last(path, payloads):
        if "00004-of" in path:
            raise DataError("no space")
        return real(path, payloads)

    monkeypatch.setattr(tfrecord, "write_shard", fail_at_last)
    with pytest.raises(DataError, match="no space"):
        _make(source, tmp_path / "t", tokenizer, num_shards=5)
    with pytest.raises(DataError, match="shard 4 of 5 is missing"):
        tfrecord.RecordSet(str(tmp_path / "t"))
    monkeypatch.undo()
    card = _make(source, tmp_path / "t", tokenizer, num_shards=2)
    assert not list(tmp_path.glob("*-of-00005*"))
    assert (
        len(tfrecord.RecordSet(str(tmp_path / "t")))
        == card["splits"]["train"]["examples"]
    )


@pytest.mark.parametrize("prefix", ["wiki", "wiki-20", "[x]"])
def test_prefixes_are_not_patterns(tokenizer, tmp_path, prefix):
    source = str(GOLDEN / "tf1_data/input.txt")
    kept = tmp_path / "wiki-2019-00000-of-00001.tfrecord"
    kept.write_bytes(b"another data set's")
    _make(source, tmp_path / prefix, tokenizer, num_shards=3)
    _make(source, tmp_path / prefix, tokenizer, num_shards=2, overwrite=True)
    assert len(tfrecord.RecordSet(str(tmp_path / prefix)).paths) == 2
    assert kept.read_bytes() == b"another data set's"


def test_a_damaged_part_or_settings_are_named(tokenizer, tmp_path, monkeypatch):
    source = str(GOLDEN / "tf1_data/input.txt")
    monkeypatch.setattr(create, "write_shard", _raise(DataError("stop")))
    with pytest.raises(DataError, match="stop"):
        _make(source, tmp_path / "t", tokenizer)
    monkeypatch.undo()
    (part,) = (tmp_path / "t.partial").glob("block*")
    content = part.read_bytes()
    part.write_bytes(b"")
    with pytest.raises(DataError, match="block-000000-000000.npz: damaged part"):
        _make(source, tmp_path / "t", tokenizer)
    part.write_bytes(content)
    (tmp_path / "t.partial/settings.json").write_text("{")
    with pytest.raises(UsageError, match="holds parts of a run that was stopped"):
        _make(source, tmp_path / "t", tokenizer)
    _make(source, tmp_path / "t", tokenizer, overwrite=True)
    assert (tmp_path / "dataset.json").exists()


def test_files_can_be_named(tokenizer, tmp_path):
    source = str(GOLDEN / "tf1_data/input.txt")
    output = f"{tmp_path}/a.tfrecord,{tmp_path}/b.tfrecord"
    _make(source, output, tokenizer, _config(masking="static"), num_shards=None)
    found = tfrecord.RecordSet(output)
    assert [pathlib.Path(path).name for path in found.paths] == [
        "a.tfrecord",
        "b.tfrecord",
    ]
    example = parse(found[0])
    assert len(example["input_ids"]) == 128
    assert len(example["masked_lm_positions"]) == 19


def test_an_old_data_set_stays_until_the_new_one_is_complete(
    tokenizer, tmp_path, monkeypatch
):
    source = str(GOLDEN / "tf1_data/input.txt")
    output = tmp_path / "t"
    _make(source, output, tokenizer, num_shards=2)
    old = _content(tmp_path)
    frame, framed = tfrecord.frame, []

    def fail(payload):
        framed.append(payload)
        if len(framed) == 30:
            raise OSError(errno.EIO, "Input/output error")
        return frame(payload)

    monkeypatch.setattr(tfrecord, "frame", fail)
    other = _config(eval_fraction=0.5)
    with pytest.raises(DataError, match="Input/output error"):
        _make(source, output, tokenizer, other, num_shards=3, overwrite=True)
    monkeypatch.undo()
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in old}
    assert kept == old
    # The same run again, now with fewer shards.
    _make(source, output, tokenizer, other, num_shards=1, overwrite=True)
    new = _content(tmp_path)
    assert "t-00000-of-00001.tfrecord" in new and new != old
    assert not {name for name in new if "-of-00002" in name or "-of-00003" in name}
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert len(tfrecord.RecordSet(str(output)))


def test_a_full_disk_leaves_no_half_file(tokenizer, tmp_path, monkeypatch):
    real = files.open_binary

    def full(path, mode="rb"):
        file = real(path, mode)
        if mode == "wb" and ".tfrecord" in path and "00001" in path:
            file.close()
            return open("/dev/full", "wb")
        return file

    source = str(GOLDEN / "tf1_data/input.txt")
    monkeypatch.setattr(files, "open_binary", full)
    with pytest.raises(DataError, match="00001-of-00003.* cannot be written: No space"):
        _make(source, tmp_path / "t", tokenizer)
    monkeypatch.undo()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "t.partial",
        "t-00000-of-00003.tfrecord",
        "t-00000-of-00003.tfrecord.idx",
    }
    _make(source, tmp_path / "t", tokenizer)  # with space, it goes on
    assert len(_content(tmp_path)) == 8


def test_repeated_documents_can_be_dropped(tokenizer, tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.txt").write_text(TEXT)
    card = _make(f"{tmp_path}/*.txt", tmp_path / "o/t", tokenizer, drop_duplicates=True)
    assert card["corpus"]["documents"] == card["corpus"]["duplicate_documents"] == 33


def test_nothing_to_train_on(tokenizer, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n")
    with pytest.raises(DataError, match="contains no training example: 0 documents"):
        _make(str(path), tmp_path / "t", tokenizer)
    path.write_text("Hi.\n")
    with pytest.raises(DataError, match="no training example: 1 document with 2 tok"):
        _make(str(path), tmp_path / "t", tokenizer)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_more_shards_than_examples(tokenizer, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT[:2000])
    with pytest.raises(UsageError, match="num_shards: 500 shards, but only"):
        _make(str(path), tmp_path / "t", tokenizer, num_shards=500)
    _make(str(path), tmp_path / "t", tokenizer, num_shards=2)


def test_a_script_without_main_guard_ends(tmp_path, corpus_path):
    """Each of its workers would start the work anew; they must not block it."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from albert_tf.data.prepare import create
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.text.load import load_tokenizer
tokenizer = load_tokenizer({MODEL!r})
corpus = Corpus({corpus_path!r})
create.create_pretraining_data(
    corpus, {str(tmp_path / "t")!r}, tokenizer, RecordConfig(), num_processes=2
)
"""
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode
    assert "without `if __name__" in done.stderr


@pytest.mark.parametrize(
    ("output", "settings", "message"),
    [
        ("folder/", {}, "output_file: must name files or a prefix"),
        ("a,b", {}, "several files must end in .tfrecord"),
        ("a", {"num_shards": 0}, "num_shards: must be positive, received 0"),
        ("a.tfrecord", {"num_shards": 2}, "2, but output_file names 1"),
        ("a.tfrecord,b", {"num_shards": None}, "must end in .tfrecord, received 'b'"),
        ("a", {"num_processes": -1}, "num_processes: must be positive, received -1"),
        ("a", {"runner": "x", "drop_duplicates": True}, "duplicates: .* with --runner"),
    ],
)
def test_wrong_arguments_are_refused(tokenizer, tmp_path, output, settings, message):
    source = str(GOLDEN / "tf1_data/input.txt")
    with pytest.raises(UsageError, match=message):
        _make(source, f"{tmp_path}/{output}", tokenizer, **settings)
