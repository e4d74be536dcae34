"""What a model answers is shown whole, and nothing else."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.figure import new_figure, to_png
from albert_tf.reports import figures
from albert_tf.reports.page import Page, Section, render
from albert_tf.reports.task_report import (
    Lengths,
    TaskReport,
    render_evaluation,
    seed_blocks,
)
from tests.reports.parsed_page import ParsedPage

ERROR = {
    "index": 1234,
    "text": "a bad film",
    "label": "neg",
    "prediction": "pos",
    "score": 0.987654,
    "truncated": True,
}
CLASSES = {
    "labels": ["neg", "pos"],
    "confusion": [[40, 2], [0, 58]],
    "per_class": [
        {"label": "neg", "precision": 1.0, "recall": 0.95, "f1": 0.97, "support": 42}
    ],
    "calibration": [[0.9, True], [0.8, False], [0.6, True]],
    "errors": [ERROR],
    "groups": [{"name": "middle", "accuracy": 0.75}],
}
# Field -> a value, the section that it makes, its pictures, and text that is shown.
PARTS = {
    "results": ({"dev": {"accuracy": 0.81}}, "Results", 0, "0.8100"),
    "splits": ({"dev": CLASSES}, "Answers on dev", 2, "a bad film"),
    "lengths": (
        {"train": Lengths([5, 9, 64], 64, 2, 1)},
        "Lengths and truncation",
        1,
        "50.00%",
    ),
    "useful_token_rate": (0.25, "Lengths and truncation", 0, "25.0%"),
}


@pytest.fixture
def quick(monkeypatch):
    """Pictures are made, but not painted, which takes most of the time."""
    blank = to_png(new_figure(1, 1))
    monkeypatch.setattr(figures, "to_png", lambda figure, dpi: blank)


def full_run() -> TaskReport:
    return TaskReport(
        task="sst2",
        model="albert_base",
        metric="accuracy",
        best_step=10,
        **{name: part[0] for name, part in PARTS.items()},
    )


def shown(**fields) -> ParsedPage:
    return ParsedPage(render_evaluation(TaskReport(**fields)))


def test_everything():
    parsed = ParsedPage(render_evaluation(full_run()))
    assert parsed.titles == list(dict.fromkeys(part[1] for part in PARTS.values()))
    assert len(parsed.images) == sum(part[2] for part in PARTS.values())
    for text in ("Evaluation: sst2", "task sst2, model albert_base", "step 10"):
        assert text in parsed.text
    for *_, text in PARTS.values():
        assert text in parsed.text


def test_nothing():
    parsed = shown()
    assert parsed.titles == [] and parsed.images == []
    assert "Evaluation" in parsed.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone(name):
    value, title, pictures, text = PARTS[name]
    parsed = shown(**{name: value})
    assert parsed.titles == [title]
    assert len(parsed.images) == pictures
    assert text in parsed.text


def test_a_report_survives_json():
    values = json.loads(json.dumps(dataclasses.asdict(full_run())))
    # Reports of earlier versions hold more.
    again = TaskReport.from_dict({**values, "title": "x", "history": []})
    assert render_evaluation(again) == render_evaluation(full_run())


def test_errors_keep_their_order_and_are_cut():
    errors = [dict(ERROR, index=i, text=f"({i})" + "x" * 5000) for i in (7, 3)]
    parsed = shown(splits={"dev": {"errors": errors}})
    assert parsed.text.index("(7)") < parsed.text.index("(3)")
    assert "x" * 990 in parsed.text and "x" * 1001 not in parsed.text
    assert "0.9877" in parsed.text


def test_many_labels_are_a_table_of_pairs():
    labels = [f"label{i}" for i in range(31)]
    confusion = np.eye(31, dtype=int)
    confusion[4, 9] = 5
    parsed = shown(splits={"dev": {"labels": labels, "confusion": confusion.tolist()}})
    assert not parsed.images
    assert "label4" in parsed.text and "0.8333" in parsed.text
    assert "label5" not in parsed.text
    parsed = shown(splits={"dev": {"labels": ["a"], "confusion": [[3]]}})
    assert "No label was confused with another." in parsed.text


@pytest.mark.usefixtures("quick")
def test_labels_without_glyphs_are_named_in_the_caption():
    answers = {"labels": ["中", "b", "no. 3"], "confusion": [[1, 0, 0]] * 3}
    parsed = shown(splits={"dev": answers})
    assert "no. 1 is 中" in parsed.text and "no. 3 is" not in parsed.text


@pytest.mark.usefixtures("quick")
def test_seeds():
    def shown(*values, **more):
        trials = [
            {"name": f"seed_{i}", "seed": i, "value": value, "results": {}, **more}
            for i, value in enumerate(values)
        ]
        section = Section("Seeds", seed_blocks(trials, "seed_1", "f1"))
        return ParsedPage(render(Page("t", "", [section])))

    parsed = shown(None, None)
    assert "without a result" in parsed.text and "median" not in parsed.text
    parsed = shown(0.8, 0.9, learning_rate=1e-5)
    (row,) = [row for row in parsed.all("tr") if row.get("class") == "marked"]
    assert "0.8500" in parsed.text and "1e-05" in parsed.text
    bad = "<script>alert(1)</script>"
    assert bad in shown(bad, 1.0, **{bad: bad}).text


def test_results_without_splits():
    parsed = shown(results={"dev_accuracy": 0.5, "test": {"f1": 0.25}})
    assert "dev_accuracy" in parsed.text and "0.2500" in parsed.text


@pytest.mark.usefixtures("quick")
def test_regression():
    scatter = [[1.0, 1.5], [4.0, float("nan")], [5.0, 4.0]]
    parsed = shown(splits={"dev": {"scatter": scatter}})
    (image,) = parsed.all("img")
    assert "of 2 examples of dev" in image["alt"]
    assert "1 without a finite value left out" in parsed.text


def test_checkpoint():
    parsed = shown(metric="f1", best_step=1500)
    assert "The checkpoint of step 1,500 has the best f1." in parsed.text
    assert shown(best_step=1500).titles == shown(metric="f1").titles == []


@pytest.mark.usefixtures("quick")
def test_numpy_numbers():
    answers = {
        "labels": ["a", "b"],
        "confusion": np.array([[np.int64(3), 1], [0, 2]]),
        "calibration": np.array([[0.5, 1.0]]),
        "scatter": np.array([[0.5, 1.0]]),
        "errors": [dict(ERROR, index=np.int64(5), score=np.float32(0.25))],
    }
    lengths = {"dev": Lengths(np.array([1, 2]), 4, 2, np.int64(0))}
    parsed = shown(splits={"dev": answers}, lengths=lengths)
    assert "0.2500" in parsed.text
