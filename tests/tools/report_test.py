"""`albert-tf report` as a person runs it."""

import pytest

from albert_tf.inference import fill_mask
from tests.commands import run_command
from tests.imports import ROOT
from tests.reports.runs import write_run

TOOL = str(ROOT / "tools/report.py")


@pytest.fixture
def run_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command("report", *arguments)


def test_a_page_of_two_runs_without_tensorflow(tmp_path, run_python):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b")]
    code = f"""
import runpy, sys
sys.argv = [{TOOL!r}, *{paths!r}, "--cost_per_hour=1.5"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as e:
    assert not e.code
heavy = {{"tensorflow", "keras", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = run_python("-c", code, cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "a_report.html: written; open it in a browser\n"
    page = (tmp_path / "a_report.html").read_text()
    assert "<title>2 runs</title>" in page and "1.5 per hour" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "a_report.html", "b"]


def test_nothing_is_overwritten_unasked(tmp_path, run_report):
    path = write_run(tmp_path / "a")
    (tmp_path / "a_report.html").write_text("mine")
    done = run_report(path)
    assert done.code == 2 and "exists already; give --overwrite" in done.err
    assert (tmp_path / "a_report.html").read_text() == "mine"
    assert run_report(path, "--overwrite").code == 0
    assert "<title>a</title>" in (tmp_path / "a_report.html").read_text()


def test_samples_of_a_run(tmp_path, run_report, monkeypatch):
    """The command passes on what the checkpoints answer; another test asks them."""
    write_run(tmp_path / "a")
    write_run(tmp_path / "f", kind="finetune")
    (tmp_path / "p.txt").write_text("a [MASK] .")

    def answer_all(run, prompts, top_k):
        print(run, prompts, top_k)
        yield {"name": "step 5", "answers": [[[("cat", 0.5)]]]}

    monkeypatch.setattr(fill_mask, "answer_all", answer_all)
    done = run_report("f", "a", "--samples", "--top_k=1", "--prompts_file=p.txt")
    assert done.out == "a ['a [MASK] .'] 1\n", done.err
    assert "cat 50.0%" in (tmp_path / "f_report.html").read_text()
