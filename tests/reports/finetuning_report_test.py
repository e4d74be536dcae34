"""The page of a fine-tuning run shows all there is, and nothing else."""

import dataclasses

import numpy as np
import pytest

from albert_tf.reports import finetuning_curves, finetuning_figures
from albert_tf.reports.figure import new_figure, to_png
from albert_tf.reports.finetuning_report import (
    FinetuningReport,
    Lengths,
    make_report,
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
HISTORY = [
    {"split": "train", "step": 10, "loss": 0.7, "learning_rate": 1e-5},
    {"split": "dev", "step": 10, "loss": 0.6, "accuracy": 0.8},
]
# Field -> a value, the section that it makes, its pictures, and text that is shown.
PARTS = {
    "warnings": (["seed 3 collapsed"], "Warnings", 0, "seed 3 collapsed"),
    "results": ({"dev": {"accuracy": 0.81}}, "Results", 0, "0.8100"),
    "history": (HISTORY, "Curves", 2, ""),
    "seeds": (
        [{"seed": 1, "metric": 0.8}, {"seed": 2, "metric": 0.9}],
        "Seeds",
        1,
        "0.8500",  # the median
    ),
    "search": ([{"learning_rate": 1e-5, "metric": 0.5}], "Search", 0, "1e-05"),
    "splits": ({"dev": CLASSES}, "Answers on dev", 2, "a bad film"),
    "lengths": (
        {"train": Lengths([5, 9, 64], 64, 2, 1)},
        "Lengths and truncation",
        1,
        "50.00%",
    ),
    "useful_token_rate": (0.25, "Lengths and truncation", 0, "25.0%"),
    "settings": ({"learning_rate": 2e-5}, "Settings", 0, "2e-05"),
    "environment": ({"versions": {"keras": "3.15"}}, "Environment", 0, "3.15"),
}


@pytest.fixture
def quick(monkeypatch):
    """Pictures are made, but not painted, which takes most of the time."""
    blank = to_png(new_figure(1, 1))
    for module in (finetuning_curves, finetuning_figures):
        monkeypatch.setattr(module, "to_png", lambda figure, dpi: blank)


def full_run() -> FinetuningReport:
    return FinetuningReport(
        title="SST-2",
        task="sst2",
        model="albert_base",
        created="today",
        metric="accuracy",
        best_step=10,
        **{name: part[0] for name, part in PARTS.items()},
    )


def shown(**fields) -> ParsedPage:
    return ParsedPage(make_report(FinetuningReport(**fields)))


def test_everything():
    parsed = ParsedPage(make_report(full_run()))
    assert parsed.titles == list(dict.fromkeys(part[1] for part in PARTS.values()))
    assert len(parsed.images) == sum(part[2] for part in PARTS.values())
    for text in ("SST-2", "task sst2, model albert_base", "today", "step 10"):
        assert text in parsed.text
    for *_, text in PARTS.values():
        assert text in parsed.text


def test_nothing():
    parsed = shown()
    assert parsed.titles == [] and parsed.images == []
    assert "Fine-tuning" in parsed.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone(name):
    value, title, pictures, text = PARTS[name]
    parsed = shown(**{name: value})
    assert parsed.titles == [title]
    assert len(parsed.images) == pictures
    assert text in parsed.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", PARTS)
def test_each_part_left_out(name):
    empty = {f.name: f for f in dataclasses.fields(FinetuningReport)}[name]
    default = (
        empty.default
        if empty.default is not dataclasses.MISSING
        else empty.default_factory()
    )
    run = dataclasses.replace(full_run(), best_step=None, **{name: default})
    titles = ParsedPage(make_report(run)).titles
    shared = sum(part[1] == PARTS[name][1] for part in PARTS.values()) > 1
    assert (PARTS[name][1] in titles) == shared


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CLASSES)
def test_each_part_of_the_answers_alone(name):
    headings = {
        "per_class": "Labels",
        "calibration": "Calibration",
        "errors": "Errors",
        "groups": "Groups",
    }
    if name in headings:
        parsed = shown(splits={"dev": {name: CLASSES[name]}})
        assert len(parsed.all("h3")) == 1 and headings[name] in parsed.text
    else:
        parsed = shown(splits={"dev": {k: CLASSES[k] for k in ("labels", "confusion")}})
        assert len(parsed.images) == 1


def test_same_run_same_bytes():
    run = FinetuningReport(splits={"dev": CLASSES}, created="today")
    page = make_report(run)
    assert page == make_report(run)
    later = dataclasses.replace(run, created="later")
    assert make_report(later) == page.replace(b"today", b"later")


def test_hostile_text_everywhere():
    bad = "<script>alert(1)</script>\0\ud800$x^$"
    error = dict(ERROR, text=bad, label=[bad], prediction={"a": bad})
    answers = {
        "labels": [bad, "b"],
        "confusion": [[1, 2], [3, 4]],
        "per_class": [{"label": bad, "f1": 1.0}],
        "errors": [error],
        "groups": [{"name": bad, bad: 1.0}],
    }
    history = [{"split": bad, "step": 1, "loss": 1.0, bad: 0.5}]
    parsed = shown(
        title=bad,
        task=bad,
        metric=bad,
        best_step=3,
        warnings=[bad],
        results={bad: {bad: bad}},
        history=history,
        seeds=[{"seed": bad, "metric": 1.0}],
        search=[{bad: bad}],
        splits={bad: answers},
        lengths={bad: Lengths([1], 2, 1, 0)},
        settings={bad: bad},
        environment={bad: bad},
    )
    assert not parsed.all("script")
    assert r"<script>alert(1)</script>\x00\ud800$x^$" in parsed.text


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
    assert "No label was taken for another." in parsed.text


@pytest.mark.usefixtures("quick")
def test_labels_without_glyphs_are_named_in_the_caption():
    answers = {"labels": ["中", "b", "no. 3"], "confusion": [[1, 0, 0]] * 3}
    parsed = shown(splits={"dev": answers})
    assert "no. 1 is 中" in parsed.text and "no. 3 is" not in parsed.text


@pytest.mark.usefixtures("quick")
def test_seeds_without_results():
    parsed = shown(seeds=[{"seed": 1, "metric": None}, {"seed": 2, "metric": None}])
    assert "without a result" in parsed.text and "median" not in parsed.text
    parsed = shown(
        seeds=[
            {"seed": 1, "metric": float("nan")},
            {"seed": 2, "metric": 0.5, "selected": True},
        ]
    )
    (row,) = [row for row in parsed.all("tr") if row.get("class") == "marked"]
    assert "0.5000" in parsed.text


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
