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


def test_what_a_message_advises_helps(tmp_path):
    (tmp_path / "a.txt").write_bytes(INPUT.read_bytes() + b"\n\nbad \xff\n")
    done = _run(tmp_path, input_file=tmp_path / "a.txt")
    assert done.code == 1 and "--on_bad_input=skip leaves it out" in done.err
    given = {"on_bad_input": "skip", "eval_fraction": 1e-9}
    done = _run(tmp_path, input_file=tmp_path / "a.txt", **given)
    assert done.code == 0, done.err
    assert "warning: nothing is held out: --eval_fraction=1e-09" in done.err
    assert "skipped or cut: lines_not_utf8 1" in done.out


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_masks_that_have_no_room_are_named(masking, tmp_path):
    given = {"max_seq_length": 64, "max_predictions_per_seq": 5, "masking": masking}
    done = _run(tmp_path, **given)
    assert done.code == 0, done.err
    warning = "warning: max_predictions_per_seq=5 masks 0.0781 of 64 tokens, less than"
    assert (warning in done.err) == (masking == "static")


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
