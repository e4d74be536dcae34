"""The page of runs: tables and charts that compare them, whatever they contain."""

import json
import math
import random
import re

import numpy as np
import pytest

from albert_tf.reports import run_page
from albert_tf.reports.run_files import Curve, read_runs
from albert_tf.reports.run_page import render_runs
from tests.reports.parsed_page import ParsedPage
from tests.reports.runs import hostile_run, lines, rollback, write_run

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}]]></style><!-- &lt;b&gt; &amp;",
    "</script><script>alert(1)</script></td></tr></table>",
    "\u202eb\0",
)


def page_of(*paths, **more):
    return ParsedPage(render_runs(read_runs(paths), **more))


@pytest.fixture
def runs(tmp_path):
    paths = [
        write_run(tmp_path / "a"),
        write_run(
            tmp_path / "b",
            lines(40, tokens=None),
            kind="finetune",
            finished=True,
            train_file="only in fine-tuning",
            learning_rate=0.5,
            output_dir="elsewhere",
            eval_file="x",
        ),
    ]
    return read_runs(paths)


def test_what_it_took_and_what_is_left(runs):
    table = run_page.overview(runs, 90.0)
    assert table.names == ["", "a", "b"]
    assert table.rows == [
        ["kind", "pretraining", "fine-tuning"],
        ["state", "50% done", "finished"],
        ["step", "20 of 40", "40 of 40"],
        # 10 lines of 1000 tokens at 500 a second.
        ["training time", "20.0 s", "–"],
        ["time left", "20.0 s", "–"],
        ["tokens", "10,000", "–"],
        ["tokens per second, median", "500", "500"],
        ["cost so far", "0.5", "–"],
        ["cost of what is left", "0.5", "–"],
    ]
    names = [row[0] for row in run_page.overview(runs, None).rows]
    assert names == [row[0] for row in table.rows[:-2]]


def test_last_values_best_values_and_settings_that_differ(runs):
    table = run_page.last_and_best(runs)
    rows = {tuple(row[:2]): row[2:] for row in table.rows}
    assert rows["Loss", "train"] == ["0.8000 (0.8000 at 20)", "0.4000 (0.4000 at 40)"]
    assert rows["MLM accuracy", "train"][0] == "0.1000 (0.1000 at 20)"
    assert rows["Learning rate", "train"][0] == "0.0010"
    assert rows["MLM baseline", "eval"][0] == "0.0100"
    table = run_page.differing_settings(runs)
    assert table.rows == [["learning_rate", "0.001", "0.5"], ["eval_file", "–", "x"]]
    assert not run_page.differing_settings(runs[:1]).rows


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.94, "59.9 s"),
        (60, "1 min"),
        (3599, "1 h"),
        (3600 * 5 + 65, "5 h 1 min"),
        (86400 * 7 + 3600 * 3 + 300, "7 d 3 h"),
    ],
)
def test_durations(seconds, text):
    assert run_page.duration(seconds) == text


def test_charts_of_two_runs(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", lines(4))]
    made = run_page.make_charts(read_runs(paths))
    described = {
        chart["title"]: [(s["run"], s["label"], s["kind"]) for s in chart["series"]]
        for chart in made
    }
    assert list(described) == [
        "Loss",
        "MLM loss",
        "MLM accuracy",
        "Learning rate",
        "Gradient norm before clipping",
        "LAMB's trust ratios (logarithmic)",
        "Tokens per second",
        "Share of useful tokens",
    ]
    assert described["MLM accuracy"] == [
        (0, "train", "line"),
        (0, "eval", "points"),
        (0, "trivial baseline", "baseline"),
        (1, "train", "line"),
    ]
    assert described[made[5]["title"]] == [
        (run, f"{name}/kernel", "line") for run in (0, 1) for name in "ab"
    ]
    assert [chart["byWeight"] for chart in made] == [False] * 5 + [True] + [False] * 2


def test_the_baseline_of_a_fine_tuning_run(tmp_path):
    values = {"accuracy": 0.5, "majority_accuracy": 0.4, "collapsed": 1.0}
    found = [{"split": "eval", "step": 3, **values, "b_majority_accuracy": 0.3}]
    (run,) = runs = read_runs([write_run(tmp_path / "a", found, kind="finetune")])
    first, second = run_page.make_charts(runs)
    assert [(s["label"], s["kind"]) for s in first["series"]] == [
        ("eval", "points"),
        ("trivial baseline", "baseline"),
    ]
    assert second["title"] == "B majority accuracy"  # of nothing that was measured
    assert run.notices[0].startswith("a: training looked collapsed at step 3:")


def test_thinning_keeps_ends_peaks_valleys_and_gaps():
    rng = random.Random(3)
    values = np.array([rng.uniform(1, 2) for _ in range(100_000)])
    values[12_345], values[65_432], values[77_777] = 50.0, -50.0, math.nan
    thinned = run_page.thin(Curve(np.arange(100_000), values), run_page.MAX_POINTS)
    assert run_page.MAX_POINTS * 0.6 < len(thinned.steps) <= run_page.MAX_POINTS
    kept = dict(zip(thinned.steps.tolist(), thinned.values, strict=True))
    assert kept[12_345] == 50.0 and kept[65_432] == -50.0 and math.isnan(kept[77_777])
    assert list(kept) == sorted(kept) and {0, 99_999} <= kept.keys()
    for size in (0, 1, 2, 3, 7, 8, 9, 25):
        curve = run_page.thin(Curve(np.arange(size), values[:size]), 8)
        assert len(curve.steps) == size if size <= 8 else len(curve.steps) <= 8


def test_data_is_json_without_nan(tmp_path):
    found = lines(4, loss=math.nan)
    found[1] |= {"loss": math.inf, "grad_norm": -math.inf, "learning_rate": 1 / 3}
    parsed = page_of(write_run(tmp_path / "a", found))
    data = json.loads(parsed.scripts[0], parse_constant=pytest.fail)
    values = {chart["title"]: chart["series"][0]["y"] for chart in data["charts"]}
    assert values["Loss"] == ["NaN", "Infinity"]
    assert values["Gradient norm before clipping"] == [1, "-Infinity"]
    assert values["Learning rate"] == [0.001, 0.3333333]
    clock = {"step": [2, 4], "hours": [0.0005555556, 0.001111111]}
    clock["tokens"] = [1000, 2000]
    assert data["runs"] == [{"name": "a", "clock": clock, "rollbacks": []}]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_run_is_shown_not_run(text, tmp_path):
    shapes = []
    for word in (text, "w" * len(text)):
        path = hostile_run(tmp_path / word[:1], word.replace("\0", ""))
        runs = read_runs([path, write_run(tmp_path / "other")])
        answers = [{"name": word, "answers": [[[(word, 0.5)], [(word, 0.25)]]]}]
        answers = {"prompts": [word], "answers": {runs[0].name: answers}}
        page = render_runs(runs, **answers)
        parsed = ParsedPage(page)
        shapes.append([(tag, sorted(names)) for tag, names in parsed.tags])
        labels = [
            series["label"]
            for chart in json.loads(parsed.scripts[0])["charts"]
            for series in chart["series"]
        ]
        shown = word.replace("\u202e", r"\u202e")
        assert shown.replace("\0", "") in labels
        assert parsed.text.count(shown.replace("\0", r"\x00")) >= 3
        assert not re.search("[\0\u202e]", page.decode())
    assert shapes[0] == shapes[1]


def test_without_a_script_the_tables_tell_the_last_values(tmp_path):
    paths = [write_run(tmp_path / name, learning_rate=n) for n, name in enumerate("ab")]
    parsed = page_of(*paths, cost_per_hour=2.5)
    assert parsed.titles == [
        "Overview",
        "Curves",
        "Values",
        "Settings that differ",
        "Everything about each run",
    ]
    for text in ("need JavaScript", "0.8000 (0.8000 at 20)", "2.5 per hour"):
        assert text in parsed.text
    (tmp_path / "a/metrics.jsonl").write_text("")
    single = page_of(paths[0])
    assert single.titles == ["Overview", "Everything about the run"]
    assert "per hour" not in single.text and "hidden_size" in single.text
    assert "The data card is not where the run found it." in single.text
    assert "a: nothing is on record yet." in single.text


def test_answers_of_checkpoints_and_over_time(tmp_path):
    path = write_run(tmp_path / "a")
    found = [{"text": "one [MASK] .", "masks": [[["the", 0.75]]]}]
    line = {"step": 1600, "weights": "last", "answers": found}
    (tmp_path / "a/samples.jsonl").write_text(json.dumps(line))
    answers = [
        {"name": "step 600", "answers": [[[("the", 0.25), ("", 0.125)]]]},
        {"name": "model", "answers": [[[("cat", 0.5)], [("dog", 0.25)]]]},
    ]
    parsed = page_of(path, prompts=["a [MASK] ."], answers={"a": answers})
    assert {"Answers of checkpoints", "Answers over time"} <= {*parsed.titles}
    for text in ("a [MASK] .", "the 25.0%, ▁ 12.5%", "cat 50.0% | dog 25.0%"):
        assert text in parsed.text
    for text in ("one [MASK] .", "the 75.0%", "1,600"):
        assert text in parsed.text


def test_same_runs_same_bytes(tmp_path):
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b/a")
    pages = [render_runs(read_runs([path])) for path in (one, other)]
    assert pages[0] == pages[1]


def test_rollbacks_are_named_and_marked(tmp_path):
    found = [*lines(), rollback(13, 12, 12), rollback(1011, 1008, 10, phase=1000)]
    path = write_run(tmp_path / "a", found)
    runs = read_runs([path, write_run(tmp_path / "b")])
    table = run_page.rollback_table(runs)
    assert table.names[0] == "run" and table.names[5] == "of the phase from step"
    assert table.rows[0] == ["a", 13, "57.2500", "not finite", 12, 0, 12]
    single = read_runs([write_run(tmp_path / "c", found[:-1])])
    table = run_page.rollback_table(single)
    assert table.rows == [[13, "57.2500", "not finite", 12, 12]]
    assert not run_page.rollback_table(runs[1:]).rows
    marks = [run["rollbacks"] for run in map(run_page.run_data, runs)]
    assert [[mark["step"] for mark in one] for one in marks] == [[13, 1011], []]
    assert marks[0][1]["text"] == (
        "diverged at step 1,011: loss 57.2500, gradient norm not finite; batch 10 of "
        "the phase from step 1,000 left out, back to step 1,008"
    )
    assert "Batches left out" in page_of(path).titles
