"""The tables and charts that compare runs."""

import json
import math
import random

import pytest

from albert_tf.reports import comparison
from albert_tf.reports.measurements import Curve
from albert_tf.reports.run_files import Rollback, read_runs
from tests.reports.runs import lines, write_run


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
    table = comparison.overview(runs, 90.0)
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
    names = [row[0] for row in comparison.overview(runs, None).rows]
    assert names == [row[0] for row in table.rows[:-2]]


def test_a_run_without_lines_or_steps(tmp_path):
    path = write_run(tmp_path / "a", num_train_steps=None)
    (tmp_path / "a/metrics.jsonl").write_text("")
    runs = read_runs([path])
    rows = dict(comparison.overview(runs, 1.0).rows)
    assert rows["state"] == "not finished" and rows["step"] == "0"
    assert {rows[name] for name in ("time left", "tokens", "cost so far")} == {"–"}
    assert comparison.last_and_best(runs) is None


def test_last_and_best_values(tmp_path):
    found = lines()
    found[2]["loss"], found[4]["loss"] = math.nan, 0.25
    found[6]["mlm_accuracy"] = 0.75
    runs = read_runs([write_run(tmp_path / "a", found), write_run(tmp_path / "b")])
    table = comparison.last_and_best(runs)
    assert table.names == ["metric", "split", "a", "b"]
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["Loss", "train"] == ["0.8000 (0.2500 at 10)", "0.8000 (0.8000 at 20)"]
    assert rows["MLM accuracy", "train"][0] == "0.1000 (0.7500 at 12)"
    assert rows["MLM baseline", "eval"] == ["0.0100", "0.0100"]
    assert rows["Tokens per second", "train"] == ["500.0000", "500.0000"]
    assert not any("Trust" in name or name == "Tokens" for name, _ in rows)
    assert [*rows][:2] == [("Loss", "train"), ("Loss", "eval")]


def test_only_settings_that_differ(runs):
    table = comparison.differing_settings(runs)
    assert table.rows == [["learning_rate", "0.001", "0.5"], ["eval_file", "–", "x"]]
    assert comparison.differing_settings(runs[:1]) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (3599, "1 h"),
        (3600 * 5 + 65, "5 h 1 min"),
        (86400 * 7 + 3600 * 3 + 300, "7 d 3 h"),
    ],
)
def test_durations(seconds, text):
    assert comparison.duration(seconds) == text


def curve_of(values):
    curve = Curve()
    for step, value in enumerate(values):
        curve.append(step, value)
    return curve


def test_charts_of_two_runs(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", lines(4))]
    made = comparison.make_charts(read_runs(paths))
    assert [chart["title"] for chart in made] == [
        "Loss",
        "MLM loss",
        "MLM accuracy",
        "Learning rate",
        "Gradient norm before clipping",
        "LAMB's trust ratios (logarithmic)",
        "Tokens per second",
        "Share of useful tokens",
    ]
    described = {
        chart["title"]: [(s["run"], s["label"], s["kind"]) for s in chart["series"]]
        for chart in made
    }
    assert described["Loss"] == [
        (0, "train", "line"),
        (0, "eval", "points"),
        (1, "train", "line"),
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
    first, second = comparison.make_charts(runs)
    assert [(s["label"], s["kind"]) for s in first["series"]] == [
        ("eval", "points"),
        ("trivial baseline", "baseline"),
    ]
    assert second["title"] == "B majority accuracy"  # of nothing that was measured
    assert run.notices[0].startswith("a: training looked collapsed at step 3:")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("mnli_mismatched_accuracy", "Mnli mismatched accuracy"),
        ("f1", "F1"),
        ("_", "_"),
        ("sop_loss", "SOP loss"),
    ],
)
def test_titles_of_metrics(name, title):
    assert comparison.title_of(name) == title


def test_thinning_keeps_ends_peaks_valleys_and_gaps():
    rng = random.Random(3)
    values = [rng.uniform(1, 2) for _ in range(1_000_000)]
    values[123_456], values[654_321] = 50.0, -50.0
    values[777_777] = math.nan
    thinned = comparison.thin(curve_of(values), comparison.MAX_POINTS)
    size = len(thinned.steps)
    assert comparison.MAX_POINTS * 0.6 < size <= comparison.MAX_POINTS
    kept = dict(zip(thinned.steps, thinned.values, strict=True))
    assert kept[123_456] == 50.0 and kept[654_321] == -50.0
    assert math.isnan(kept[777_777])
    assert min(kept) == 0 and max(kept) == 999_999
    assert list(thinned.steps) == sorted(thinned.steps)
    # Of every piece its own extremes, too.
    piece = 1_000_000 // ((comparison.MAX_POINTS - 2) // 3)
    assert {min(values[:piece]), max(values[:piece])} <= set(thinned.values)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 25])
@pytest.mark.parametrize("limit", [5, 8, 11])
def test_no_size_exceeds_the_limit(size, limit):
    values = [math.nan if i % 4 == 1 else math.sin(i) for i in range(size)]
    thinned = comparison.thin(curve_of(values), limit)
    assert len(thinned.steps) <= limit
    if size <= limit:
        assert list(thinned.steps) == list(range(size))


def test_data_is_json_without_nan(tmp_path):
    found = lines(4, loss=math.nan)
    found[1] |= {"loss": math.inf, "grad_norm": -math.inf, "learning_rate": 1 / 3}
    runs = read_runs([write_run(tmp_path / "a", found)])
    charts, run = comparison.make_charts(runs), comparison.run_data(runs[0])
    assert json.loads(json.dumps([charts, run], allow_nan=False)) == [charts, run]
    values = {chart["title"]: chart["series"][0]["y"] for chart in charts}
    assert values["Loss"] == ["NaN", "Infinity"]
    assert values["Gradient norm before clipping"] == [1, "-Infinity"]
    assert values["Learning rate"] == [0.001, 0.3333333]
    assert run["name"] == "a"
    assert run["clock"] == {
        "step": [2, 4],
        "hours": [0.0005555556, 0.001111111],
        "tokens": [1000, 2000],
    }


def test_the_table_of_rollbacks():
    one, other = Rollback(11, 8, 10, 0, 57.25), Rollback(1011, 1008, 10, 1000)
    table = comparison.rollback_table({"a": [one]})
    assert table.names[0] == "diverged at step"
    assert table.cells == [["11", "57.2500", "not finite", "10", "8"]]
    table = comparison.rollback_table({"a": [one], "b": [other], "c": []})
    assert table.names[0] == "run" and table.names[5] == "of the phase from step"
    assert table.cells[1] == [
        *("b", "1,011", "not finite", "not finite", "10", "1,000", "1,008")
    ]
    assert comparison.rollback_table({"a": []}) is None
