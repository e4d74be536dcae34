"""What `make demo` refuses; `make test-all` runs it with fewer steps."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, str(ROOT / "tools/demo.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path):
    (tmp_path / "mine").touch()
    result = run(f"--output_dir={tmp_path}")
    assert result.returncode == 2
    assert "must be a new or empty folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_failing_step_is_one_line(tmp_path):
    result = run(f"--output_dir={tmp_path / 'out'}", "--input_file=nowhere.txt")
    assert result.returncode == 1
    assert "nowhere.txt" in result.stderr and "Traceback" not in result.stderr
