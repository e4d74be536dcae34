"""What a model answers is shown whole, and nothing else."""

import numpy as np
import pytest

from albert_tf.reports.page import render
from albert_tf.reports.task_report import answers_of, render_evaluation
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
LENGTHS = {"values": [5, 9, 64], "max_seq_length": 64, "examples": 2, "truncated": 1}
# Field -> a value, the section that it makes, its pictures, and text that is shown.
PARTS = {
    "results": ({"dev": {"accuracy": 0.81}}, "Results", 0, "0.8100"),
    "splits": ({"dev": CLASSES}, "Answers on dev", 2, "a bad film"),
    "lengths": ({"train": LENGTHS}, "Lengths and truncation", 1, "50.00%"),
    "useful_token_rate": (0.25, "Lengths and truncation", 0, "25.0%"),
}


def shown(**fields) -> ParsedPage:
    return ParsedPage(render_evaluation(fields))


def test_everything():
    about = {"task": "sst2", "model": "albert_base", "metric": "accuracy"}
    parsed = shown(**about, best_step=10, **{k: part[0] for k, part in PARTS.items()})
    assert parsed.titles == list(dict.fromkeys(part[1] for part in PARTS.values()))
    assert len(parsed.images) == sum(part[2] for part in PARTS.values())
    for text in ("Evaluation: sst2", "task sst2, model albert_base", "step 10"):
        assert text in parsed.text
    assert shown().titles == []


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone(name):
    value, title, pictures, text = PARTS[name]
    parsed = shown(**{name: value})
    assert parsed.titles == [title]
    assert len(parsed.images) == pictures
    assert text in parsed.text


def test_errors_keep_their_order_and_are_cut():
    errors = [dict(ERROR, index=i, text=f"({i})" + "x" * 5000) for i in (7, 3)]
    parsed = shown(splits={"dev": {"errors": errors}})
    assert parsed.text.index("(7)") < parsed.text.index("(3)")
    assert "x" * 990 in parsed.text and "x" * 1001 not in parsed.text
    assert "0.9877" in parsed.text


def test_many_labels_are_a_table_of_pairs():
    labels = [f"label{i}" for i in range(31)]
    confusion = np.eye(31, dtype=int)
    confusion[4, 9], confusion[4, 8] = 5, 2
    parsed = shown(splits={"dev": {"labels": labels, "confusion": confusion.tolist()}})
    assert not parsed.images
    assert parsed.text.index("label9") < parsed.text.index("label8")
    assert "0.6250" in parsed.text and "label5" not in parsed.text
    parsed = shown(splits={"dev": {"labels": ["a"], "confusion": [[3]]}})
    assert "No label was confused with another." in parsed.text


@pytest.mark.usefixtures("quick")
def test_labels_without_glyphs_are_named_in_the_caption():
    answers = {"labels": ["中", "b", "no. 3"], "confusion": [[1, 0, 0]] * 3}
    parsed = shown(splits={"dev": answers})
    assert "no. 1 is 中" in parsed.text and "no. 3 is" not in parsed.text


def test_seeds():
    runs = [{"name": f"seed_{i}", "seed": i, "value": 0.8 + i / 10} for i in range(2)]
    trials = {"metric": "f1", "median": 0.85, "lowest": 0.8, "highest": 0.9}
    for found, best in ((runs, "seed_1"), ([{**runs[0], "value": None}], "seed_0")):
        answers = answers_of({}, {**trials, "runs": found, "best": best})
        parsed = ParsedPage(render("evaluation", "t", "", found=answers))
        (row,) = [row for row in parsed.all("tr") if row.get("class") == "marked"]
        assert ("0.8500" in parsed.text) == ("0.0707" in parsed.text) == (found is runs)
