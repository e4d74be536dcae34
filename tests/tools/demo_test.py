"""`make demo`, with fewer steps: every command of the main job, one after the other."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, str(ROOT / "tools/demo.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_whole_main_job(tmp_path):
    out = tmp_path / "out"
    result = run(
        f"--output_dir={out}",
        "--input_file=docstrings:max_bytes=1000000",
        "--num_train_steps=10",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for name in (
        "spiece.model",
        "data/dataset.json",
        "data/length_histogram.png",
        "pretrain/checkpoints/checkpoint",
        "pretrain/curves.png",
        "pretrain/model/model.safetensors",
        "classifier/metrics.json",
        "saved_model/saved_model.pb",
        "report.html",
    ):
        assert (out / name).stat().st_size > 0
    summary = (out / "README.md").read_text()
    assert summary in result.stdout
    for part in ("MLM accuracy", "SOP accuracy", "random weights", "probabilities"):
        assert part in summary
    predictions = (out / "fill_mask.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["result"]) for line in predictions] == [5] * 6
    # A second time into the same folder is refused, and nothing is touched.
    again = run(f"--output_dir={out}")
    assert again.returncode == 2
    assert "must be a new or empty folder" in again.stderr


def test_failing_step_is_one_line(tmp_path):
    result = run(f"--output_dir={tmp_path / 'out'}", "--input_file=nowhere.txt")
    assert result.returncode == 1
    assert "nowhere.txt" in result.stderr and "Traceback" not in result.stderr
