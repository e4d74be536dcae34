"""The benchmark as a person runs it, on a text so small that it says nothing."""

import json

import pytest

from tests.commands import run_command
from tests.imports import ROOT

GOLDEN = ROOT / "tests/golden"


@pytest.mark.broad  # a minute, with parts that tests/benchmarks has as well
def test_data(tmp_path, run_python):
    arguments = [
        "data",
        f"--input_file={GOLDEN}/tf1_data/input.txt",
        f"--spm_model_file={GOLDEN}/tokenization/spiece.model",
        "--rounds=1",
        "--seconds=0.1",
        "--max_seq_length=64",
        "--memory_megabytes=1",
        f"--output_file={tmp_path}/out/data",
    ]
    done = run_python(str(ROOT / "tools/benchmark.py"), *arguments)
    assert done.returncode == 0, done.stderr
    assert "text to records" in done.stderr  # progress
    assert done.stdout == (tmp_path / "out/data.md").read_text()
    result = json.loads((tmp_path / "out/data.json").read_text())
    assert result["machine"]["cores"] >= 1
    rows = {row["name"]: row["value"] for row in result["rows"]}
    assert len(rows) == 14 and all(value >= 0 for value in rows.values())
    one = rows["text to records: ours, 1 process"]
    one /= rows["text to records: the original's algorithm, 1 process"]
    assert rows["ours in 1 process, times that algorithm"] == pytest.approx(one)
    done = run_python(str(ROOT / "tools/benchmark.py"), *arguments)
    assert done.returncode == 2 and "data.json exists already" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--topic=step --shapes=8x128,8", "--shapes: expected rows x tokens, such"),
        ("--topic=fidelity", "--recording_dir: required for benchmark fidelity"),
    ],
)
def test_wrong_flags(arguments, message):
    done = run_command("benchmark", *arguments.split())
    assert done.code == 2 and message in done.error
