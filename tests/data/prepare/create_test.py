"""The whole build: process counts, resuming, existing output, languages, buckets."""

import errno
import json
import os
import pathlib
import signal
import sys

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare import blocks, create, output
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from tests.conftest import ROOT
from tests.data.synthetic_records import parse
from tests.tiny import SPIECE, TEXT

PROSE = TEXT.read_text()


@pytest.fixture(scope="module")
def corpus_path(tmp_path_factory):
    """Two sources of several files, some small ones that share a group."""
    folder = tmp_path_factory.mktemp("corpus")
    for k in range(6):
        text = PROSE.replace("the", f"the {k}")
        (folder / f"{k}.txt").write_text((text + "\n") * (15 if k % 2 else 1))
    return f"even={folder}/[024].txt:0.25,odd={folder}/[135].txt:0.75"


def _config(rules="albert_tf", policy="clean", **settings):
    return RecordConfig(
        pairs=PairConfig(policy, 128, 0.1, 5),
        mask=MaskingConfig(max_predictions_per_seq=19, rules=rules),
        **({"eval_fraction": 0.1} | settings),
    )


def _make(output_file, tokenizer, config=None, source=TEXT, kind="lines", **settings):
    corpus = source if isinstance(source, Corpus) else Corpus(str(source), kind)
    return create.create_pretraining_data(
        corpus,
        str(output_file),
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


def _fail_with(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.fixture(scope="module")
def expected(tmp_path_factory, corpus_path, tokenizer):
    folder = tmp_path_factory.mktemp("expected")
    return _make(folder / "t", tokenizer, source=corpus_path), _content(folder), folder


def test_files_are_complete(expected):
    card, content, folder = expected
    names = [f"t-{k:05d}-of-00003.tfrecord" for k in range(3)]
    names += [f"t-eval-{k:05d}-of-00002.tfrecord" for k in range(2)]
    assert {*content} == {*names, *(f"{name}.idx" for name in names)}
    records = tfrecord.RecordSet(str(folder / "t"))
    assert len(records) == card["splits"]["train"]["examples"] > 600
    sizes = [shard["records"] for shard in card["splits"]["train"]["shards"]]
    assert max(sizes) - min(sizes) <= 1 and len(records.paths) == 3
    assert abs(card["examples"]["label_1_rate"] - 0.5) < 0.005
    assert card["corpus"]["duplicate_documents"] > 1000
    assert card["inputs"][0]["sha256"] and card["tokenizer"]["sha256"]
    assert 0.13 < card["masks"]["mask_rate"] < 0.16
    assert sum(card["examples"]["length_histogram"]) == card["examples"]["count"]
    assert list(card["settings"]["config"]["mask"].items())[-1] == ("mode", "clean")
    assert json.loads((folder / "dataset.json").read_text()) == card
    assert (folder / "length_histogram.png").read_bytes().startswith(b"\x89PNG")
    assert "| Documents |" in (folder / "dataset.md").read_text()
    assert not (folder / "t.partial").exists()


def test_any_number_of_processes_makes_the_same_bytes(
    expected, corpus_path, tokenizer, tmp_path
):
    card = _make(tmp_path / "t", tokenizer, source=corpus_path, num_processes=3)
    assert _content(tmp_path) == expected[1]
    assert card == expected[0]


# It imports no tests, which import TensorFlow.
_SCRIPT = """
import os, signal
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare import create, output
from albert_tf.data.prepare.blocks import MaskingConfig, PairConfig, RecordConfig
from albert_tf.data.records import tfrecord
from albert_tf.text.load import load_tokenizer

def die_after(calls, function):
    done = []
    def call(*args):
        done.append(args)
        if len(done) > calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return call

{patch}
create.create_pretraining_data(
    Corpus({source!r}, "lines"), {output!r}, load_tokenizer({tokenizer!r}),
    {config!r}, 3, {processes}
)
"""


def _script(source, folder, patch="", processes=1):
    return _SCRIPT.format(
        patch=patch,
        source=source,
        output=str(folder / "t"),
        tokenizer=str(SPIECE),
        config=_config(),
        processes=processes,
    )


def _kill(run_python, source, folder, function, calls):
    patch = f"{function} = die_after({calls}, {function})"
    done = run_python("-c", _script(source, folder, patch))
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_run_is_taken_up_again(
    expected, corpus_path, tokenizer, tmp_path, monkeypatch, run_python
):
    _kill(run_python, corpus_path, tmp_path, "output.make_part", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["t.partial"]
    assert len(list((tmp_path / "t.partial").glob("block*"))) == 2
    with pytest.raises(UsageError, match="eval_fraction was 0.1, is 0.2; re"):
        _make(tmp_path / "t", tokenizer, _config(eval_fraction=0.2), source=corpus_path)
    # Again, while it writes shards.
    numbers = [shard["records"] for shard in expected[0]["splits"]["train"]["shards"]]
    calls = numbers[0] + numbers[1] // 2
    _kill(run_python, corpus_path, tmp_path, "tfrecord.frame", calls)
    found = _content(tmp_path)
    assert found.items() <= expected[1].items() and found
    monkeypatch.setattr(blocks, "process_block", _fail_with(AssertionError("again")))
    card = _make(tmp_path / "t", tokenizer, source=corpus_path)
    assert _content(tmp_path) == expected[1] and card == expected[0]
    assert not list(tmp_path.glob(".*.partial"))


def test_damaged_parts_and_changed_text_are_noticed_when_resuming(
    tokenizer, tmp_path, monkeypatch
):
    source = tmp_path / "a.txt"
    source.write_text(PROSE)

    def make(name="t", **settings):
        return _make(tmp_path / name, tokenizer, source=source, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(output, "write_shard", _fail_with(OSError(errno.EIO, "gone")))
        with pytest.raises(OSError, match="gone"):
            make()
    (part,) = (tmp_path / "t.partial").glob("block*")
    content = part.read_bytes()
    part.write_bytes(b"")
    with pytest.raises(DataError, match="block-000000-000000.npz: damaged part"):
        make()
    part.write_bytes(content)
    stored = (tmp_path / "t.partial/settings.json").read_text()
    (tmp_path / "t.partial/settings.json").write_text("{")
    with pytest.raises(UsageError, match="holds parts of a run that was stopped"):
        make()
    (tmp_path / "t.partial/settings.json").write_text(stored)
    source.write_text(PROSE.replace("harbour", "habrour"))  # of the same size
    make()
    make("fresh/t")
    assert _content(tmp_path) == _content(tmp_path / "fresh")


@pytest.mark.parametrize("prefix", ["wiki", "[x]"])
def test_existing_output_is_kept_unless_asked(tokenizer, tmp_path, prefix):
    kept = tmp_path / "wiki-2019-00000-of-00001.tfrecord"
    kept.write_bytes(b"another data set's")
    _make(tmp_path / prefix, tokenizer)
    before = _content(tmp_path)
    with pytest.raises(UsageError, match=r"-00000-of-00003.tfrecord exists .*--over"):
        _make(tmp_path / prefix, tokenizer)
    with pytest.raises(UsageError, match="dataset.json is the card of another"):
        _make(tmp_path / "other", tokenizer)
    assert _content(tmp_path) == before
    _make(tmp_path / prefix, tokenizer, overwrite=True, num_shards=2)
    assert len(tfrecord.RecordSet(str(tmp_path / prefix)).paths) == 2
    assert len(_content(tmp_path)) == 7
    assert kept.read_bytes() == b"another data set's"


def test_files_can_be_named(tokenizer, tmp_path):
    named = f"{tmp_path}/a.tfrecord,{tmp_path}/b.tfrecord"
    config = _config("original", masking="static")
    card = _make(named, tokenizer, config, num_shards=None)
    found = tfrecord.RecordSet(named)
    assert found.paths == named.split(",")
    example = parse(found[0])
    assert len(example["input_ids"]) == 128
    assert len(example["masked_lm_positions"]) == 19
    assert card["settings"]["config"]["mask"]["mode"] == "original"


def test_an_old_data_set_stays_until_the_new_one_is_complete(
    tokenizer, tmp_path, monkeypatch
):
    path = tmp_path / "t"
    _make(path, tokenizer, num_shards=2)
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
        _make(path, tokenizer, other, num_shards=3, overwrite=True)
    monkeypatch.undo()
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in old}
    assert kept == old
    # The same run again, now with fewer shards.
    _make(path, tokenizer, other, num_shards=1, overwrite=True)
    new = _content(tmp_path)
    assert "t-00000-of-00001.tfrecord" in new and new != old
    assert not {name for name in new if "-of-00002" in name or "-of-00003" in name}
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert len(tfrecord.RecordSet(str(path)))


def test_a_full_disk_leaves_no_half_file(tokenizer, tmp_path, monkeypatch):
    real = files.open_binary

    def full(path, mode="rb"):
        file = real(path, mode)
        if mode == "wb" and ".tfrecord" in path and "00001" in path:
            file.close()
            return open("/dev/full", "wb")
        return file

    monkeypatch.setattr(files, "open_binary", full)
    with pytest.raises(DataError, match="00001-of-00003.* cannot be written: No space"):
        _make(tmp_path / "t", tokenizer)
    monkeypatch.undo()
    names = {path.name for path in tmp_path.iterdir()}
    shard = "t-00000-of-00003.tfrecord"
    assert names == {"t.partial", shard, f"{shard}.idx"}
    with pytest.raises(DataError, match="shard 1 of 3 is missing"):
        tfrecord.RecordSet(str(tmp_path / "t"))
    # With space, it goes on, perhaps with another number of shards.
    _make(tmp_path / "t", tokenizer, num_shards=2)
    assert len(_content(tmp_path)) == 6


def test_repeated_documents_can_be_dropped(tokenizer, tmp_path):
    twice = f"{tmp_path}/*.txt"
    for k in range(2):
        (tmp_path / f"{k}.txt").write_text(PROSE)
    card = _make(tmp_path / "o/t", tokenizer, source=twice, drop_duplicates=True)
    assert card["corpus"]["documents"] == card["corpus"]["duplicate_documents"] == 33


@pytest.mark.parametrize(
    "text", ["a b c d e f g h i j.\n\n" * 999, "Hm.  \n \n\n" * 99 + PROSE]
)
def test_the_progress_bar_ends_at_its_total(tokenizer, tmp_path, monkeypatch, text):
    bars = []

    class Bar(create.tqdm.tqdm):
        def __init__(self, **options):
            super().__init__(**options)
            bars.append(self)

        def update(self, n=1):
            assert self.n + n <= self.total
            return super().update(n)

    monkeypatch.setattr(create.tqdm, "tqdm", Bar)
    path = tmp_path / "a.txt"
    path.write_text(text)
    job = [Corpus(str(path), "lines"), str(tmp_path / "t"), tokenizer, _config()]
    create.create_pretraining_data(*job, num_shards=1, num_processes=1)
    assert [bar.n for bar in bars] == [len(text.encode()), bars[1].total]


def test_too_little_text(tokenizer, tmp_path):
    path = tmp_path / "a.txt"
    for text, found in (("\n\n", "0 documents"), ("Hi.\n", "1 document with 2 tok")):
        path.write_text(text)
        with pytest.raises(DataError, match=f"no training example: {found}"):
            _make(tmp_path / "t", tokenizer, source=path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    path.write_text(PROSE[:2000])
    with pytest.raises(UsageError, match="num_shards: 500 shards, but only"):
        _make(tmp_path / "t", tokenizer, source=path, num_shards=500)
    _make(tmp_path / "t", tokenizer, source=path, num_shards=2)


def test_a_script_without_main_guard_ends(tmp_path, run_python):
    """Each of its workers would start the work anew; they must not block it."""
    script = tmp_path / "script.py"
    script.write_text(_script(str(TEXT), tmp_path, processes=2))
    done = run_python(script, timeout=120)
    assert done.returncode
    assert "without `if __name__" in done.stderr


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("folder/", {}, "output_file: must name files or a prefix"),
        ("a,b", {}, "several files must end in .tfrecord"),
        ("a", {"num_shards": 0}, "num_shards: must be positive, received 0"),
        ("a.tfrecord", {"num_shards": 2}, "must be 1, the number of .*, received 2"),
        ("a.tfrecord,b", {"num_shards": None}, "must end in .tfrecord, received 'b'"),
        ("a", {"num_processes": -1}, "num_processes: must be positive, received -1"),
        ("a", {"runner": "x", "drop_duplicates": True}, "duplicates: .* with --runner"),
    ],
)
def test_wrong_arguments_are_refused(tokenizer, tmp_path, name, settings, message):
    with pytest.raises(UsageError, match=message):
        _make(f"{tmp_path}/{name}", tokenizer, **settings)


# Made up for this test; no spaces, full-width punctuation.
CHINESE = (
    "今天早上，港口的船很多。老船长数了三遍，还是数错了！他问：“有人看见那条红船吗？”"
    "没有人回答。海风很大，天色渐渐暗了下来。孩子们跑到岸边去看灯塔。"
)


def test_chinese_text_without_spaces(tmp_path):
    documents = [CHINESE[k % 7 :] for k in range(80)]
    path = tmp_path / "zh.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    options = {"vocab_size": 71, "character_coverage": 1.0, "progress": False}
    tokenizer = AlbertTokenizer(train_tokenizer(documents * 3, **options))
    config = _config(language="zh", eval_fraction=0)
    card = _make(tmp_path / "t", tokenizer, config, path, "auto")
    assert card["corpus"]["sentences"] >= 6 * len(documents)
    assert card["corpus"]["unknown_rate"] == 0
    assert abs(card["examples"]["label_1_rate"] - 0.5) < 0.05
    record = parse(tfrecord.RecordSet(str(tmp_path / "t"))[0])
    starts = record["token_boundary"].tolist()
    for token, start in zip(record["input_ids"].tolist(), starts, strict=True):
        piece = tokenizer.id_to_token(token)
        assert start or not any("\u4e00" <= c <= "\u9fff" for c in piece), piece


@pytest.mark.parametrize("change", ["cut", "grown", "rewritten", "gone"])
def test_a_file_that_changes_while_it_is_read(tokenizer, tmp_path, change):
    path = tmp_path / "a.txt"
    path.write_text(PROSE * 4)
    corpus = Corpus(str(path))
    message = "a.txt: changed while it was read"
    if change == "gone":
        path.unlink()
        message = "a.txt: cannot be read: No such file"
    elif change == "rewritten":  # of the same size
        path.write_text(PROSE.replace("harbour", "habrour") * 4)
        os.utime(path, ns=(1, 1))
    else:
        path.write_text(PROSE[:5000] if change == "cut" else PROSE * 4 + "More.")
    with pytest.raises(DataError, match=message):
        _make(tmp_path / "o/t", tokenizer, source=corpus)
    assert not [*tmp_path.rglob("*.tfrecord"), *tmp_path.rglob("dataset.json")]


def test_byte_level_bpe_keeps_the_space_between_sentences(tmp_path):
    text = "The ship sank. Nobody was hurt. It was late.\n"
    options = {"model_type": "byte_bpe", "vocab_size": 400, "progress": False}
    tokenizer = ByteBPETokenizer(train_tokenizer([PROSE], **options))
    path = tmp_path / "a.txt"
    path.write_text(text)
    config = _config(policy="none", eval_fraction=0)
    _make(tmp_path / "t", tokenizer, config, path, "paragraphs", num_shards=1)
    record = parse(tfrecord.RecordSet(str(tmp_path / "t"))[0])
    # The end of the document is a [SEP] as well.
    assert tokenizer.decode(record["input_ids"]) == text.strip()
    assert "next_sentence_labels" not in record
    # After a separator, as in RoBERTa's records, sentences have none.
    config = _config(policy="doc_sentences", eval_fraction=0)
    _make(tmp_path / "o/t", tokenizer, config, path, "paragraphs", num_shards=1)
    record = parse(tfrecord.RecordSet(str(tmp_path / "o/t"))[0])
    assert tokenizer.decode(record["input_ids"]) == text.strip().replace(". ", ".")


def test_the_environment_does_not_change_a_byte(records, tmp_path, run_python):
    expected = _content(pathlib.Path(records(max_seq_length=64)))
    flags = [f"--input_file={TEXT}", f"--output_file={tmp_path}/x", "--overwrite"]
    flags += [f"--spm_model_file={SPIECE}", "--max_seq_length=64", "--num_processes=1"]
    variables = {"PYTHONHASHSEED": "77", "LC_ALL": "C", "PYTHONUTF8": "0"}
    tool = ROOT / "tools/create_pretraining_data.py"
    done = run_python(tool, *flags, **variables, TZ="Asia/Tokyo")
    assert done.returncode == 0, done.stderr
    assert _content(tmp_path) == expected
    assert sys.byteorder == "little"  # the index is stored so on any machine


def test_a_remote_data_set_has_the_bytes_of_a_local_one(tmp_path, tokenizer, bucket):
    source, output = files.join(bucket, "input.txt"), files.join(bucket, "out")
    files.write_bytes(source, TEXT.read_bytes())
    _make(files.join(output, "t"), tokenizer, source=source)
    _make(tmp_path / "local/t", tokenizer)
    names = files.list_folder(tmp_path / "local")
    assert files.list_folder(output) == names
    assert sum(name.endswith(".tfrecord") for name in names) == 4
    for path in (tmp_path / "local").iterdir():
        if path.suffix in (".tfrecord", ".idx", ".png"):
            assert files.read_bytes(files.join(output, path.name)) == path.read_bytes()
    records = tfrecord.RecordSet(files.join(output, "t"))
    assert records.read([3, 1]) == [records[3], records[1]]
    with pytest.raises(UsageError, match="give --overwrite"):
        _make(files.join(output, "t"), tokenizer, source=source)
    _make(files.join(output, "t"), tokenizer, source=source, overwrite=True)
    assert files.list_folder(output) == names
