"""The tables that compare runs."""

import math

import pytest

from albert_tf.reports import comparison
from albert_tf.reports.run_files import read_runs
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
