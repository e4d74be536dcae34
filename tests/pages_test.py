"""Pages of docs/ say what benchmarks found, configs set and servers answer."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import manifest
from albert_tf.tasks.registry import TASKS
from benchmarks.fidelity_curves import short
from tests.documents import ROOT, pages, shown, words

PAGES = {page: page.read_text(encoding="utf-8") for page in pages()}
TEXT = {page.stem: text for page, text in PAGES.items()}
FIDELITY, FINETUNING = TEXT["fidelity"], TEXT["finetuning"]


def anchors(page):
    """The names by which a code host finds the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.M)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\((?!https?:|hf:)([^)\s]*)\)", PAGES[page]):
        name, _, anchor = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists() and path.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(path), link


def test_the_site_starts_with_the_code_of_the_readme():
    (code,) = (item.text for item in shown(ROOT / "README.md") if item.kind == "python")
    assert f"```python\n{code}```" in PAGES[ROOT / "docs/index.md"]
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 60


# docs/fidelity.md
FOUND = json.loads((ROOT / "docs/benchmarks/fidelity.json").read_text())
FOUND_ROWS = {row["name"]: row for row in FOUND["rows"]}
TITLES = {"lamb": "LAMB", "adamw": "AdamW"}
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", FIDELITY)))


@pytest.mark.parametrize("path, name", NAMED, ids=map("::".join, NAMED))
def test_tests_that_are_named_exist(path, name):
    source = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name or 'test'}" in source
    assert len(NAMED) > 40


def values_of(row):
    """A row of the benchmark as the page shows it, of both optimizers."""
    found = (FOUND_ROWS[f"{title}: {row}"]["value"] for title in TITLES.values())
    return [short(value) for value in found]


def test_the_table_is_that_of_the_benchmark():
    number = r"(0|\S*e-\d+)"
    lines = re.findall(rf"^\| (.*) \| {number} \| {number} \|$", FIDELITY, re.M)
    found = [name.removeprefix("LAMB: ") for name in FOUND_ROWS]
    assert len(lines) == 7
    for name, *values in lines:
        name = name.replace("norm, largest", "norm before clipping, largest")
        row = next(n for n in found if n.startswith(name.removeprefix("learning ")))
        assert values_of(row) == values, name


@pytest.mark.parametrize("page", ["fidelity", "README"])
def test_the_sentence_is_that_of_the_benchmark(page):
    lamb, adamw = values_of("loss, largest difference of 500 steps")
    assert f"at most {lamb} (LAMB) and {adamw} (AdamW)" in TEXT[page]
    assert "benchmarks/fidelity.png" in FIDELITY


@pytest.mark.parametrize("optimizer", TITLES)
def test_the_rows_follow_from_every_step(optimizer):
    series = FOUND["series"][optimizer]
    for name in ("loss", "mlm_loss", "sop_loss"):
        assert [len(values) for values in series[name].values()] == [500, 500]
    ours, original = (
        np.asarray(one, np.float32).astype(float) for one in series["loss"].values()
    )
    row = FOUND_ROWS[f"{TITLES[optimizer]}: loss, largest difference of 500 steps"]
    assert row["value"] == np.abs(ours - original).max()
    # The golden steps are the first ones.
    log = json.loads((ROOT / "tests/golden/tf1_curve/log.json").read_text())
    losses = series["loss"]["original"][:30]
    np.testing.assert_allclose(log["runs"][optimizer]["loss"], losses, rtol=1e-7)


def test_the_aims_are_met():
    aims = [row for row in FOUND_ROWS.values() if row["target"]]
    assert len(aims) >= 6
    for row in aims:
        assert row["value"] <= float(row["target"].removeprefix("at most ")), row


# docs/finetuning.md
# `race.py` is for the models that few still use; the page shows `race_v2.py`.
CONFIGS = sorted((ROOT / "configs/finetune").glob("*.py"))
SHOWN = [path for path in CONFIGS if path.stem != "race"]
TABLE = re.findall(r"^\| `(\w+)` \| (.*) \|$", FINETUNING, re.M)
# The first table has five columns, the second one three.
ROWS = {name: row.split(" | ") for name, row in TABLE if row.count(" | ") == 3}
OWN_TASKS = sorted(set(TASKS) - {"ax", "beir"})  # only evaluated


def row_of(task):
    return ROWS["race_v2" if task == "race" else task]


def test_every_task_has_its_rows():
    files = {name for name, row in TABLE if row.count(" | ") == 1}
    assert set(ROWS) == files == {path.stem for path in SHOWN}
    assert sorted(name.removesuffix("_v2") for name in ROWS) == OWN_TASKS


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_the_command_of_the_config_is_that_of_the_page(path):
    pattern = r"^ *(python tools/finetune.py(?:.*\\\n)*.*)$"
    (recorded,) = re.findall(pattern, path.read_text(encoding="utf-8"), re.M)
    from_mnli = path.stem in ("mrpc", "stsb", "rte")
    assert set(words(recorded)[2:]) == {
        f"--config=configs/finetune/{path.name}",
        f"--data_dir={ROWS[path.stem][-1].strip('`')}",
        f"--init_checkpoint={'runs/mnli' if from_mnli else 'albert_base'}",
        f"--output_dir=runs/{path.stem}",
    }


@pytest.mark.parametrize("name", OWN_TASKS)
def test_labels_and_the_metric_that_selects_are_those_of_the_task(name):
    _, labels, metric, *_ = row_of(name)
    assert f"`{TASKS[name].selecting_metric}`" in metric
    if tags := re.fullmatch(r"O, and B- and I- of (.*)", labels):
        named = ["O", *(f"{p}-{kind}" for kind in tags[1].split(", ") for p in "BI")]
    else:
        named = re.sub(r"\([^)]*\)", "", labels).replace(" ", "").split(",")
    if TASKS[name].labels:
        assert tuple(named) == TASKS[name].labels


# docs/serving.md
SERVING = ROOT / "docs/serving.md"


def signatures():
    """The signatures in the page's table, by model: inputs and outputs."""
    text = TEXT["serving"].split("## 3. Signatures")[1].split("##")[0]
    found, model = {}, None
    for row in re.findall(r"^\|(.*)\|$", text, re.M)[2:]:
        first, names, inputs, outputs = (cell.strip() for cell in row.split("|"))
        model = first or model
        for name in re.findall(r"`(\w+)`", names):
            found.setdefault(model, {})[name] = (
                set(re.findall(r"`([a-z_]+)`", inputs)),
                set(re.findall(r"`([a-z_]+)`", outputs)),
            )
    return found


@pytest.mark.slow
def test_the_table_has_the_signatures_of_a_classifier(exported):
    table = signatures()["text classifier"]
    for line in manifest.describe(exported("text_classifier")):
        name, _, rest = line.partition("(")
        inputs, outputs = (
            set(re.findall(r"(\w+): ", part)) for part in rest.split(" -> ")
        )
        assert inputs <= table[name][0]
        assert outputs <= (table[name][1] or table["serving_default"][1])


@pytest.mark.slow
def test_the_requests_are_answered(exported):
    loaded = tf.saved_model.load(exported("text_classifier"))
    asked = [item.text for item in shown(SERVING) if item.text.startswith("curl ")]
    bodies = [re.search(r"-d '(.*?)'", text)[1] for text in asked if " -d " in text]
    assert len(bodies) == 4
    for request in map(json.loads, bodies):
        columns, rows = request.get("inputs"), request.get("instances")
        if rows:
            rows = [row if isinstance(row, dict) else {"text": row} for row in rows]
            columns = {name: [row[name] for row in rows] for name in rows[0]}
        signature = loaded.signatures[request.get("signature_name", "serving_default")]
        answer = signature(**{k: tf.constant(v) for k, v in columns.items()})
        assert all(len(value) == len(columns["text"]) for value in answer.values())
