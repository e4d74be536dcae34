"""What is drawn, and how many points of it."""

import json
import math
import random

import pytest

from albert_tf.reports import charts
from albert_tf.reports.measurements import Curve
from albert_tf.reports.run_files import read_runs
from tests.reports.runs import lines, write_run


def curve_of(values):
    curve = Curve()
    for step, value in enumerate(values):
        curve.append(step, value)
    return curve


def test_charts_of_two_runs(tmp_path):
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", lines(4))]
    made = charts.make_charts(read_runs(paths))
    assert [chart.title for chart in made] == [
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
        chart.title: [(s.run, s.label, s.kind) for s in chart.series] for chart in made
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
    assert described[made[5].title] == [
        (run, f"{name}/kernel", "line") for run in (0, 1) for name in "ab"
    ]
    assert [chart.by_weight for chart in made] == [False] * 5 + [True] + [False] * 2


def test_the_baseline_of_a_fine_tuning_run(tmp_path):
    values = {"accuracy": 0.5, "majority_accuracy": 0.4, "collapsed": 1.0}
    found = [{"split": "eval", "step": 3, **values, "b_majority_accuracy": 0.3}]
    (run,) = runs = read_runs([write_run(tmp_path / "a", found, kind="finetune")])
    first, second = charts.make_charts(runs)
    assert [(s.label, s.kind) for s in first.series] == [
        ("eval", "points"),
        ("trivial baseline", "baseline"),
    ]
    assert second.title == "B majority accuracy"  # of nothing that was measured
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
    assert charts.title_of(name) == title


def test_thinning_keeps_ends_peaks_valleys_and_gaps():
    rng = random.Random(3)
    values = [rng.uniform(1, 2) for _ in range(1_000_000)]
    values[123_456], values[654_321] = 50.0, -50.0
    values[777_777] = math.nan
    thinned = charts.thin(curve_of(values), charts.MAX_POINTS)
    size = len(thinned.steps)
    assert charts.MAX_POINTS * 0.6 < size <= charts.MAX_POINTS
    kept = dict(zip(thinned.steps, thinned.values, strict=True))
    assert kept[123_456] == 50.0 and kept[654_321] == -50.0
    assert math.isnan(kept[777_777])
    assert min(kept) == 0 and max(kept) == 999_999
    assert list(thinned.steps) == sorted(thinned.steps)
    # Of every piece its own extremes, too.
    piece = 1_000_000 // ((charts.MAX_POINTS - 2) // 3)
    assert {min(values[:piece]), max(values[:piece])} <= set(thinned.values)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 25])
@pytest.mark.parametrize("limit", [5, 8, 11])
def test_no_size_exceeds_the_limit(size, limit):
    values = [math.nan if i % 4 == 1 else math.sin(i) for i in range(size)]
    thinned = charts.thin(curve_of(values), limit)
    assert len(thinned.steps) <= limit
    if size <= limit:
        assert list(thinned.steps) == list(range(size))


def test_data_is_json_without_nan(tmp_path):
    found = lines(4, loss=math.nan)
    found[1] |= {"loss": math.inf, "grad_norm": -math.inf, "learning_rate": 1 / 3}
    runs = read_runs([write_run(tmp_path / "a", found)])
    data = charts.as_data(runs, charts.make_charts(runs))
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    values = {chart["title"]: chart["series"][0]["y"] for chart in data["charts"]}
    assert values["Loss"] == ["NaN", "Infinity"]
    assert values["Gradient norm before clipping"] == [1, "-Infinity"]
    assert values["Learning rate"] == [0.001, 0.3333333]
    (run,) = data["runs"]
    assert run["name"] == "a"
    assert run["clock"] == {
        "step": [2, 4],
        "hours": [0.0005555556, 0.001111111],
        "tokens": [1000, 2000],
    }
