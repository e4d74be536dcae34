"""The Beam pipeline makes the files the local path makes."""

import json
import pathlib

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare import local as build
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.text.sentencepiece import AlbertTokenizer

pytest.importorskip("apache_beam")

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
# What DirectRunner falls back to where it cannot download a runner of its own.
RUNNER = "FnApiRunner"
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


@pytest.fixture(scope="module")
def tokenizer():
    return AlbertTokenizer(str(GOLDEN / "tokenization/spiece.model"))


def _content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if ".tfrecord" in p.name}


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
    from albert_tf.data.prepare import beam

    text = (GOLDEN / "tf1_data/input.txt").read_text()
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text((text + "\n") * (40 if k else 1))
    source = f"{tmp_path}/*.txt"
    config = RecordConfig(
        pairs=PairConfig("clean", 128), masking=masking, eval_fraction=0.1
    )
    local = build.create_pretraining_data(
        Corpus(source, "lines"),
        f"{tmp_path}/local/t",
        tokenizer,
        config,
        num_shards=3,
        num_processes=1,
        progress=False,
    )
    made = beam.create_with_beam(
        Corpus(source, "lines"),
        f"{tmp_path}/beam/t",
        tokenizer,
        config,
        runner=runner,
        beam_options=options,
        num_shards=3,
    )
    assert _content(tmp_path / "beam") == _content(tmp_path / "local")
    assert made == local == json.loads((tmp_path / "beam/dataset.json").read_text())


def test_workers_need_no_tensorflow(run_python):
    code = (
        "import sys; import albert_tf.data.prepare.beam; "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras')))"
    )
    assert run_python("-c", code).returncode == 0


@pytest.mark.slow
def test_bad_input_is_named(tokenizer, tmp_path):
    from albert_tf.data.prepare import beam

    path = tmp_path / "a.txt"
    path.write_bytes(b"Good.\nBad \xff.\n")
    with pytest.raises(DataError, match="a.txt: byte 10: not UTF-8"):
        beam.create_with_beam(
            Corpus(str(path), "lines"),
            f"{tmp_path}/t",
            tokenizer,
            RecordConfig(),
            runner=RUNNER,
        )


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
    from albert_tf.data.prepare import beam

    with pytest.raises(UsageError, match=message):
        beam.create_with_beam(
            Corpus(str(GOLDEN / "tf1_data/input.txt"), "lines"),
            f"{tmp_path}/o/t",
            tokenizer,
            RecordConfig(),
            runner=runner,
            beam_options=options,
        )
    assert not list(tmp_path.rglob("*.tfrecord"))
