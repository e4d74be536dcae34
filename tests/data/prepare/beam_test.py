"""The Beam pipeline makes the files the local path makes."""

import json
import pathlib

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare import blocks
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.text.sentencepiece import AlbertTokenizer

pytest.importorskip("apache_beam")

# Nothing of `tests.tiny`, which imports TensorFlow.
GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
INPUT = GOLDEN / "tf1_data/input.txt"
TEXT = INPUT.read_text()
# What DirectRunner falls back to where it cannot download a runner of its own.
RUNNER = "FnApiRunner"
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


@pytest.fixture(scope="module")
def tokenizer():
    return AlbertTokenizer(str(GOLDEN / "tokenization/spiece.model"))


def _content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if ".tfrecord" in p.name}


def _make(source, output, tokenizer, config=None, kind="lines", **options):
    corpus = Corpus(str(source), kind, text_field=options.pop("column", "text"))
    config = config or RecordConfig()
    return create_pretraining_data(corpus, str(output), tokenizer, config, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masking", "runner", "options"),
    [
        ("dynamic", "DirectRunner", ()),
        ("static", RUNNER, ()),
        ("dynamic", RUNNER, TWO_WORKERS),
    ],
)
def test_same_files_as_the_local_path(tokenizer, tmp_path, masking, runner, options):
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text((TEXT + "\n") * (40 if k else 1))
    config = RecordConfig(PairConfig("clean", 128), masking=masking, eval_fraction=0.1)
    given = (tokenizer, config)
    source = tmp_path / "*.txt"
    if options:
        source = f"a={tmp_path}/[01].txt:0.7,b={tmp_path}/2.txt:0.3"
    local = _make(source, tmp_path / "local/t", *given, num_shards=3, num_processes=1)
    beam = {"runner": runner, "beam_options": options}
    made = _make(source, tmp_path / "beam/t", *given, num_shards=3, **beam)
    assert _content(tmp_path / "beam") == _content(tmp_path / "local")
    assert made == local == json.loads((tmp_path / "beam/dataset.json").read_text())


@pytest.mark.slow
def test_bad_input_is_named_and_another_column_is_read(tokenizer, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"title": 1, "body": TEXT}))
    given = {"kind": "auto", "overwrite": True, "runner": RUNNER}
    message = "a.jsonl: line 1: column 'title' .* must contain strings"
    with pytest.raises(DataError, match=message):
        _make(path, tmp_path / "o/t", tokenizer, column="title", **given)
    card = _make(path, tmp_path / "o/t", tokenizer, column="body", **given)
    assert card["corpus"]["documents"] == 1


@pytest.mark.parametrize(
    ("runner", "options", "message"),
    [
        ("Nonsense", [], "runner: Nonsense cannot be used"),
        ("DataflowRunner", [], "runner: DataflowRunner cannot be used"),
        (RUNNER, ["--direct_num_workers=abc"], "beam_option: .*direct_num_workers"),
        (RUNNER, ["--no_such_option=1"], "no option .*no_such_option"),
        (RUNNER, ["garbage"], "no option 'garbage'"),
    ],
)
def test_runners_and_options_beam_does_not_know(
    tokenizer, tmp_path, runner, options, message
):
    given = {"runner": runner, "beam_options": options}
    with pytest.raises(UsageError, match=message):
        _make(INPUT, tmp_path / "o/t", tokenizer, **given)
    assert not list(tmp_path.rglob("*.tfrecord"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "hold",
    [
        "albert_tf.data.prepare.beam:_read",
        "albert_tf.data.prepare.output:make_part",
        "albert_tf.data.prepare.output:write_shard",
    ],
)
def test_same_files_when_a_dask_worker_is_killed(
    tokenizer, tmp_path, monkeypatch, hold
):
    pytest.importorskip("distributed")
    from tests.dask_cluster import cluster

    def groups(corpus):  # as for large files: one worker reads each
        return [[k] for k in range(len(corpus.sources))]

    monkeypatch.setattr(blocks, "source_groups", groups)
    for k, copies in enumerate((1, 2, 40, 3, 1, 2)):  # 40: two blocks
        (tmp_path / f"{k}.txt").write_text((TEXT + "\n") * copies)
    config = RecordConfig(PairConfig("clean", 64), eval_fraction=0.2)

    def create(name, **options):
        given = (tmp_path / "*.txt", tmp_path / name / "t", tokenizer, config)
        return _make(*given, num_shards=6, **options)

    undisturbed = create("direct", runner="DirectRunner")
    with cluster(tmp_path / "cluster", hold, after=2) as dask:
        made = dask.run_and_kill_one(
            lambda: create("dask", runner="DaskRunner", beam_options=dask.options)
        )
    assert len(_content(tmp_path / "direct")) > 12
    assert _content(tmp_path / "dask") == _content(tmp_path / "direct")
    assert made == undisturbed
    assert not (tmp_path / "dask/t.partial").exists()
