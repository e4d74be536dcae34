"""docs/fidelity.md says what the benchmark found, and names tests that exist."""

import json
import pathlib
import re

import numpy as np
import pytest

from benchmarks.fidelity_curves import short

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs/fidelity.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOUND = json.loads((ROOT / "docs/benchmarks/fidelity.json").read_text())
ROWS = {row["name"]: row for row in FOUND["rows"]}
TITLES = {"lamb": "LAMB", "adamw": "AdamW"}
# Line of the page's table: row of the benchmark.
LINES = {
    "loss, largest difference": "loss, largest difference of 500 steps",
    "loss, mean difference": "loss, mean difference",
    "masked-LM loss, largest difference": (
        "masked-LM loss, largest difference of 500 steps"
    ),
    "sentence-order loss, largest difference": (
        "sentence-order loss, largest difference of 500 steps"
    ),
    "gradient norm, largest relative difference": (
        "gradient norm before clipping, largest relative difference"
    ),
    "learning rate, largest relative difference": "rate, largest relative difference",
    "norms of the final weights, largest relative difference": (
        "norms of the final weights, largest relative difference"
    ),
}
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize("path, name", NAMED, ids="::".join)
def test_the_tests_exist(path, name):
    source = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name or 'test'}" in source


def test_many_tests_are_named():
    assert len(NAMED) > 40


@pytest.mark.parametrize("line", LINES)
def test_the_table_is_that_of_the_benchmark(line):
    values = [ROWS[f"{title}: {LINES[line]}"]["value"] for title in TITLES.values()]
    assert f"| {line} | {' | '.join(map(short, values))} |" in PAGE


@pytest.mark.parametrize("page", [PAGE, README], ids=["page", "readme"])
def test_the_sentence_is_that_of_the_benchmark(page):
    lamb, adamw = (
        short(ROWS[f"{title}: loss, largest difference of 500 steps"]["value"])
        for title in TITLES.values()
    )
    assert f"at most {lamb} (LAMB) and {adamw} (AdamW)" in page
    assert "benchmarks/fidelity.png" in page


@pytest.mark.parametrize("optimizer", TITLES)
def test_the_rows_follow_from_every_step(optimizer):
    for name in ("loss", "mlm_loss", "sop_loss"):
        values = FOUND["series"][optimizer][name]
        assert len(values["original"]) == len(values["albert_tf"]) == 500
    losses = FOUND["series"][optimizer]["loss"].values()
    ours, original = (np.asarray(one, np.float32).astype(float) for one in losses)
    row = ROWS[f"{TITLES[optimizer]}: loss, largest difference of 500 steps"]
    assert row["value"] == np.abs(ours - original).max()


@pytest.mark.parametrize("optimizer", TITLES)
def test_the_golden_steps_are_the_first_ones(optimizer):
    log = json.loads((ROOT / "tests/golden/tf1_curve/log.json").read_text())
    losses = FOUND["series"][optimizer]["loss"]["original"][:30]
    np.testing.assert_allclose(log["runs"][optimizer]["loss"], losses, rtol=1e-7)


def test_the_aims_are_met():
    aims = [row for row in ROWS.values() if row["target"]]
    assert len(aims) >= 6
    for row in aims:
        assert row["value"] <= float(row["target"].removeprefix("at most ")), row
