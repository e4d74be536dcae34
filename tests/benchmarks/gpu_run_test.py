"""A whole run in its small form, on a CPU."""

import dataclasses
import re

import pytest

from albert_tf.errors import DataError, UsageError
from benchmarks import gpu_run
from tests import forked
from tests.benchmarks.objectives_test import write_tables
from tests.commands import run_command
from tests.tiny import SPIECE, TEXT

pytest.importorskip("jax")


@pytest.fixture
def study(tmp_path):
    write_tables(tmp_path)
    scale = dataclasses.replace(gpu_run.SCALES["small"], finetune={"sst2": (4, 8)})
    tasks = {"sst2": str(tmp_path)}
    folder = str(tmp_path / "study")
    return gpu_run.Study(folder, str(TEXT), str(SPIECE), tasks, 10.0, scale)


@pytest.mark.slow
def test_a_small_run_is_killed_and_continued(study, tmp_path, monkeypatch):
    monkeypatch.setitem(gpu_run.SCALES, "small", study.scale)
    monkeypatch.setattr(gpu_run, "_PYTHON", forked.PYTHON)
    monkeypatch.setattr(gpu_run, "_device", lambda: "cpu")  # the other test asks JAX
    report = gpu_run.run(study)
    names = [row.name for row in report.rows]
    speeds = ["length 32: tokens/s", "length 64: tokens/s"]
    assert names == [*speeds, "sst2: dev_accuracy"]
    killed = re.search(r"killed after step (\d+), ", report.text)
    assert 8 <= int(killed[1]) < 20
    assert "| 20 | " in report.text  # the curve ends with the last step
    assert not (tmp_path / "study/pretrain/compilation_cache").exists()
    # What is there is not computed again.
    monkeypatch.setattr(gpu_run, "_finish", None)
    assert gpu_run.run(study) == report
    with pytest.raises(UsageError, match="must be a folder of the same study"):
        gpu_run.run(dataclasses.replace(study, minutes=11.0))


@pytest.mark.parametrize(
    ("size", "changes", "message"),
    [
        (99, {}, "--input_file must have text for 4 rows of 64 tokens, 1,024 bytes, "),
        (5000, {}, "the 2% that are held out, received '.*short.txt: 9 documents'"),
        (
            5000,
            {"tokenizer": ""},
            "--input_file must have 20,000 bytes of text, or --s",
        ),
        (99, {"tokenizer": "none.model"}, "--spm_model_file: none.model: cannot be re"),
        (99, {"folder": str(TEXT)}, f"--work_dir: {TEXT}: cannot be created: a file "),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(
    study, tmp_path, size, changes, message
):
    text = tmp_path / "short.txt"
    text.write_text(TEXT.read_text()[:size])
    study = dataclasses.replace(study, input_file=str(text), **changes)
    with pytest.raises((UsageError, DataError), match=message):
        gpu_run._prepare(study)


def test_the_full_run_needs_a_gpu(tmp_path):
    needed = [f"--{name}_dir={tmp_path}" for name in ("work", "sst2")]
    done = run_command("benchmark", "gpu_run", *needed)
    assert done.code == 2
    assert "--cola_dir: required for benchmark gpu_run" in done.error
    needed += [f"--cola_dir={tmp_path}"]
    done = run_command("benchmark", "gpu_run", *needed)
    assert done.code == 2 and "--sst2_dir must have the files" in done.error
    (tmp_path / "train.tsv").touch()
    done = run_command("benchmark", "gpu_run", *needed)
    assert done.code == 2 and "benchmark gpu_run: JAX sees no GPU here" in done.error
