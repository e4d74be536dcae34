"""The command as a person runs it."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.data.records import tfrecord
from tests.commands import run_command
from tests.data.synthetic_records import parse

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
INPUT = GOLDEN / "tf1_data" / "input.txt"
MODEL = GOLDEN / "tokenization" / "spiece.model"


def _run(folder, **flags):
    flags = {
        "input_file": INPUT,
        "output_file": folder / "out" / "t",
        "spm_model_file": MODEL,
        "num_processes": 1,
    } | flags
    given = {name: value for name, value in flags.items() if value != ""}
    # Another folder: nothing may depend on being in the repository.
    with contextlib.chdir(folder):
        return run_command("create_pretraining_data", **given)


def test_makes_a_data_set(tmp_path):
    done = _run(
        tmp_path,
        max_seq_length=128,
        num_processes=2,
        num_shards=2,
        eval_fraction=0.2,
        dupe_factor=2,
    )
    assert done.code == 0, done.err
    assert "tokens/s" in done.err
    out = tmp_path / "out"
    assert "eval: " in done.out and "2 shards" in done.out
    assert f"data card: {out / 'dataset.md'}" in done.out
    assert "{" not in (out / "dataset.md").read_text()
    assert len(tfrecord.RecordSet(str(out / "t"))) > 80
    assert len(tfrecord.RecordSet(str(out / "t-eval"))) > 5
    card = json.loads((out / "dataset.json").read_text())
    assert card["flags"]["dupe_factor"] == 2
    assert card["flags"]["random_seed"] == 12345
    # 15% of 128 and not the original's 20 of whatever length.
    assert card["max_predictions_per_seq"] == 19


def test_static_records(tmp_path):
    settings = {"max_seq_length": 64, "masking": "static", "pair_policy": "original"}
    done = _run(tmp_path, **settings, eval_fraction=1e-9)
    assert done.code == 0, done.err
    assert "warning: nothing is held out: --eval_fraction=1e-09" in done.err
    example = parse(tfrecord.RecordSet(str(tmp_path / "out/t"))[0])
    assert len(example["input_ids"]) == 64
    assert len(example["masked_lm_positions"]) == 10
    card = json.loads((tmp_path / "out/dataset.json").read_text())
    assert 0.13 < card["masks"]["mask_rate"] < 0.17
    assert card["masks"]["from"] == "all records"


def _text(data):
    def make(folder):
        path = folder / "input.txt"
        path.write_bytes(data)
        return path

    return make


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ({"input_file": "none.txt"}, 1, "none.txt: no such file"),
        (
            {"input_file": "tfds:prose", "tfds_data_dir": ".", "on_bad_input": "error"},
            1,
            "tfds:prose: not prepared in .",
        ),
        ({"input_file": _text(b"")}, 1, "contains no training example"),
        ({"input_file": _text(b"ab\0cd\n")}, 1, "input.txt: line 1: a NUL byte"),
        ({"input_file": _text(b"ab\xffcd\n")}, 1, "input.txt: line 1: not UTF-8"),
        ({"spm_model_file": INPUT}, 1, "input.txt: not a SentencePiece model"),
        ({"spm_model_file": ""}, 2, "--spm_model_file is required"),
        ({"spm_model_file": "", "vocab_file": "v"}, 2, "--vocab_file=v is not used"),
        ({"input_file": ""}, 2, "--input_file: required"),
        ({"do_permutation": True}, 2, "--do_permutation: not supported"),
        ({"input_file_mode": "gz"}, 2, "--input_file_mode must be r, received 'gz'"),
        ({"masked_lm_prob": 1.5}, 2, "masked_lm_prob must be in (0, 1), received 1.5"),
        ({"max_seq_length": 10**11}, 2, "max_seq_length: must be from 8 to 65536"),
        ({"ngram": 10**11}, 2, "max_ngram must be at most 512"),
        (
            {"max_predictions_per_seq": 513},
            2,
            "_per_seq must be at most --max_seq_length=512, received 513",
        ),
        ({"pair_policy": "sop"}, 2, "--pair_policy must be one of"),
        (
            {"random_next_sentence": True, "pair_policy": "none"},
            2,
            "--random_next_sentence: not with --pair_policy=none",
        ),
        ({"beam_option": "--x=1"}, 2, "beam_option requires --runner"),
        ({"nonsense": 1}, 2, "nonsense"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path, flags, code, message):
    flags = {k: v(tmp_path) if callable(v) else v for k, v in flags.items()}
    done = _run(tmp_path, **flags)
    assert done.code == code, done.err
    assert message in done.error, done.err
    assert not list(tmp_path.rglob("*.tfrecord"))


def test_what_a_message_advises_helps(tmp_path):
    (tmp_path / "a.txt").write_bytes(INPUT.read_bytes() + b"\n\nbad \xff\n")
    done = _run(tmp_path, input_file=tmp_path / "a.txt")
    assert done.code == 1 and "--on_bad_input=skip leaves it out" in done.err
    done = _run(tmp_path, input_file=tmp_path / "a.txt", on_bad_input="skip")
    assert done.code == 0, done.err
    assert "skipped or cut: lines_not_utf8 1" in done.out


def test_existing_output_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    other = tmp_path / "out" / "dataset.json"
    other.write_text("{}")
    done = _run(tmp_path)
    assert done.code == 2
    assert "dataset.json exists already; give --overwrite" in done.err
    assert other.read_text() == "{}"
    done = _run(tmp_path, overwrite=True)
    assert done.code == 0, done.err
    assert other.read_text() != "{}"


def _children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def _alive(pid):
    try:
        return "(zombie)" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("sent", "code", "line"),
    [
        (signal.SIGKILL, -signal.SIGKILL, ""),
        (signal.SIGTERM, 143, "error: terminated"),
        (signal.SIGINT, 130, "error: interrupted"),
    ],
)
def test_no_worker_outlives_its_parent(tmp_path, sent, code, line):
    text = tmp_path / "a.txt"
    text.write_text((INPUT.read_text() + "\n") * 400)
    command = [sys.executable, str(ROOT / "tools/create_pretraining_data.py")]
    command += [f"--input_file={text}", f"--output_file={tmp_path}/o/t"]
    command += [f"--spm_model_file={MODEL}", "--num_processes=2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
        # A background job of a shell ignores it, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _wait(lambda: list(tmp_path.glob("o/t.partial/block*")))
    workers = _children(process.pid)
    assert len(workers) >= 2
    if sent == signal.SIGINT:  # as a terminal does
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert "Traceback" not in stderr and line in stderr
    _wait(lambda: not any(map(_alive, workers)), 20)
    assert not list(tmp_path.rglob("*.tfrecord"))
    # All that is left is where the next run finds and removes it.
    assert not list(temporary.rglob("job.pickle"))
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["t.partial"]
