"""The page is one file that runs one script, whatever the runs contain."""

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
import tomllib

import pytest

from albert_tf.reports import page
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import RunPage, render_runs
from tests.imports import ROOT
from tests.reports.page_test import HOSTILE
from tests.reports.parsed_page import ParsedPage
from tests.reports.runs import lines, rollback, write_run


class RunsPage(ParsedPage):
    """A parsed page with its scripts apart from the text."""

    def __init__(self, page):
        self.scripts = []
        super().__init__(page)

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        else:
            super().handle_data(data)


def page_of(*paths, **more):
    return render_runs(RunPage(runs=read_runs(paths), **more))


def hostile_run(folder, text):
    """Writes a run with the text wherever a run may hold one."""
    found = lines(4)
    found[0] |= {text: 1.0, "trust_ratios": {text: 2.0}, "loss": math.nan}
    found[1] |= {"split": text}
    trials = [{"name": text, "seed": 1, text: text, "results": {}}]
    name = text.replace("/", "∕")[:60]
    path = write_run(folder / name, found, "finetune", True, **{text: text})
    (folder / name / "trials.json").write_text(json.dumps(trials))
    return path


@pytest.mark.parametrize("text", [*HOSTILE, "</script><script>alert(1)</script>"])
def test_text_is_shown_not_run(text, tmp_path):
    shapes = []
    for folder, word in (("hostile", text), ("harmless", "w" * len(text))):
        path = hostile_run(tmp_path / folder, word)
        other = write_run(tmp_path / f"{folder}/other")
        (run, _) = runs = read_runs([path, other])
        answers = {"name": word, "answers": [[[(word, 0.5)], [(word, 0.25)]]]}
        page = RunPage(runs=runs, prompts=[word], answers={run.name: [answers]})
        parsed = RunsPage(render_runs(page))
        shapes.append([(tag, sorted(names)) for tag, names in parsed.tags])
        assert len(parsed.scripts) == 2
        data = json.loads(parsed.scripts[0])
        assert data["runs"][0]["name"] == run.name
        if folder == "hostile":
            assert parsed.text.count(text) >= 8
            labels = [s["label"] for c in data["charts"] for s in c["series"]]
            assert text in labels
    assert shapes[0] == shapes[1]


def test_only_the_script_may_run(tmp_path):
    page = page_of(write_run(tmp_path / "a"))
    parsed = RunsPage(page)
    (policy,) = [m["content"] for m in parsed.all("meta") if "http-equiv" in m]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    style = page.decode().split("<style>")[1].split("</style>")[0]
    for text, rule in ((parsed.scripts[1], "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for link in parsed.links():
        assert link.startswith(("data:", "#")), link
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page.decode())
    assert "innerHTML" not in parsed.scripts[1] and "eval(" not in parsed.scripts[1]


def test_without_a_script_the_tables_tell_the_last_values(tmp_path):
    paths = [write_run(tmp_path / name, learning_rate=n) for n, name in enumerate("ab")]
    parsed = RunsPage(page_of(*paths, cost_per_hour=2.5))
    assert parsed.titles == [
        "Overview",
        "Curves",
        "Values",
        "Settings that differ",
        "Everything about each run",
    ]
    for text in ("need JavaScript", "0.8000 (0.8000 at 20)", "2.5 per hour", "Adam"):
        assert (text in parsed.text) == (text != "Adam"), text
    single = RunsPage(page_of(paths[0]))
    assert "Settings that differ" not in single.titles
    assert "per hour" not in single.text and "hidden_size" in single.text
    assert "The data card is not where the run found it." in single.text


def test_a_run_without_lines_has_a_page(tmp_path):
    path = write_run(tmp_path / "a")
    (tmp_path / "a/metrics.jsonl").write_text("")
    parsed = RunsPage(page_of(path))
    assert parsed.titles == ["Overview", "Everything about the run"]
    assert "a: nothing is on record yet." in parsed.text


def test_answers_of_checkpoints(tmp_path):
    path = write_run(tmp_path / "a")
    answers = [
        {"name": "step 600", "answers": [[[("the", 0.25), ("", 0.125)]]]},
        {"name": "model", "answers": [[[("cat", 0.5)], [("dog", 0.25)]]]},
    ]
    more = {"prompts": ["a [MASK] ."], "answers": {"a": answers}}
    parsed = RunsPage(page_of(path, **more))
    assert "Answers of checkpoints" in parsed.titles
    assert "Answers over time" not in parsed.titles
    for text in ("a [MASK] .", "the 25.0%, ▁ 12.5%", "cat 50.0% | dog 25.0%"):
        assert text in parsed.text


def test_answers_over_time(tmp_path):
    path = write_run(tmp_path / "a")
    answers = [{"text": "a [MASK] .", "masks": [[["the", 0.25]]]}]
    line = {"step": 1600, "weights": "last", "answers": answers}
    (tmp_path / "a/samples.jsonl").write_text(json.dumps(line))
    parsed = RunsPage(page_of(path))
    assert "Answers over time" in parsed.titles
    for text in ("a [MASK] .", "the 25.0%", "1,600"):
        assert text in parsed.text


def test_same_runs_same_bytes(tmp_path):
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b/a")
    assert page_of(one) == page_of(other)
    write_run(tmp_path / "b/a", lines(22))
    assert page_of(one) != page_of(other)


def test_unprintable_characters_are_spelled_out(tmp_path):
    found = [{"step": 1, "trust_ratios": {"a\u202eb\0": 1.0}, "loss": 1.0}]
    page = page_of(write_run(tmp_path / "a", found, evil="\u2066x")).decode()
    assert not re.search("[\0\u202e\u2066]", page)
    (data, _) = RunsPage(page.encode()).scripts
    labels = [s["label"] for c in json.loads(data)["charts"] for s in c["series"]]
    assert r"a\u202eb\x00" in labels


def test_files_of_the_page_are_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    folder = ROOT / "albert_tf/reports"
    patterns = data["albert_tf.reports"]
    found = {path.name for pattern in patterns for path in folder.glob(pattern)}
    needed = {f"{name}.js" for name in page._SCRIPTS}
    needed |= {"page.css", *(path.name for path in folder.glob("*.j2"))}
    assert found == needed
    build = (ROOT / "BUILD").read_text()
    for pattern in patterns:
        assert f'"albert_tf/reports/{pattern}"' in build


def test_nothing_heavy_is_imported(tmp_path):
    code = """
import sys
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import RunPage, render_runs
render_runs(RunPage(runs=read_runs(sys.argv[1:])))
heavy = {"tensorflow", "keras", "matplotlib", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    command = [sys.executable, "-c", code, write_run(tmp_path / "a")]
    subprocess.run(command, check=True, cwd=ROOT)


def test_rollbacks_are_named_and_marked(tmp_path):
    path = write_run(tmp_path / "a", [*lines(), rollback(13, 12, 12)])
    parsed = RunsPage(page_of(path, write_run(tmp_path / "b")))
    assert "Batches left out" in parsed.titles
    assert "57.25" in parsed.text and "not finite" in parsed.text
    marks = [run["rollbacks"] for run in json.loads(parsed.scripts[0])["runs"]]
    assert [[mark["step"] for mark in one] for one in marks] == [[13], []]
    assert "back to step 12" in marks[0][0]["text"]
    assert "Batches left out" not in RunsPage(page_of(str(tmp_path / "b"))).titles
