"""The command as a person runs it."""

import json
import pathlib
import subprocess
import sys

import pytest

from albert_tf.data import records

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
    command = [sys.executable, str(ROOT / "tools/create_pretraining_data.py")]
    command += [f"--{name}={value}" for name, value in flags.items() if value != ""]
    # Another folder: nothing may depend on being in the repository.
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_makes_a_data_set(tmp_path):
    done = _run(
        tmp_path,
        max_seq_length=128,
        num_processes=2,
        num_shards=2,
        eval_fraction=0.2,
        dupe_factor=2,
    )
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stderr
    out = tmp_path / "out"
    assert "eval: " in done.stdout and "2 shards" in done.stdout
    assert f"data card: {out / 'dataset.md'}" in done.stdout
    assert len(records.RecordSet(str(out / "t"))) > 80
    assert len(records.RecordSet(str(out / "t-eval"))) > 5
    card = json.loads((out / "dataset.json").read_text())
    assert card["flags"]["dupe_factor"] == 2
    assert card["flags"]["random_seed"] == 12345
    # 15% of 128 and not the original's 20 of whatever length.
    assert card["max_predictions_per_seq"] == 19


def test_static_records(tmp_path):
    done = _run(tmp_path, max_seq_length=64, masking="static", pair_policy="original")
    assert done.returncode == 0, done.stderr
    assert records.describe(records.RecordSet(str(tmp_path / "out/t"))) == {
        "form": "static",
        "sequence_length": 64,
        "num_predictions": 10,
    }
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
        ({"input_file": "none.txt"}, 1, "none.txt: no match"),
        ({"input_file": _text(b"")}, 1, "gave no training example"),
        ({"input_file": _text(b"ab\0cd\n")}, 1, "input.txt: byte 2: a NUL byte"),
        ({"input_file": _text(b"ab\xffcd\n")}, 1, "input.txt: byte 2: not UTF-8"),
        ({"spm_model_file": INPUT}, 1, "input.txt: not a SentencePiece model"),
        ({"spm_model_file": ""}, 2, "--spm_model_file: required"),
        ({"spm_model_file": "", "vocab_file": "v"}, 2, "--vocab_file=v is not used"),
        ({"input_file": ""}, 2, "--input_file: required"),
        ({"do_permutation": True}, 2, "--do_permutation: has no counterpart"),
        ({"input_file_mode": "gz"}, 2, "--input_file_mode: must be r, got 'gz'"),
        ({"max_seq_length": 4}, 2, "max_seq_length: must be at least 8, got 4"),
        ({"masked_lm_prob": 1.5}, 2, "masked_lm_prob must be in (0, 1), got 1.5"),
        ({"pair_policy": "sop"}, 2, "--pair_policy=sop: "),
        (
            {"random_next_sentence": True, "pair_policy": "none"},
            2,
            "--random_next_sentence: not with --pair_policy=none",
        ),
        ({"beam_option": "--x=1"}, 2, "beam_option: needs --runner"),
        ({"nonsense": 1}, 2, "nonsense"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path, flags, code, message):
    flags = {k: v(tmp_path) if callable(v) else v for k, v in flags.items()}
    done = _run(tmp_path, **flags)
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert message in last, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.tfrecord"))


def test_existing_output_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    other = tmp_path / "out" / "dataset.json"
    other.write_text("{}")
    done = _run(tmp_path)
    assert done.returncode == 2
    assert "dataset.json exists; give --overwrite" in done.stderr
    assert other.read_text() == "{}"
    done = _run(tmp_path, overwrite=True)
    assert done.returncode == 0, done.stderr
    assert other.read_text() != "{}"
