"""docs/finetuning.md has every task, with the commands of the configs."""

import pathlib
import re
import shlex

import pytest

from albert_tf.settings import load_experiment
from albert_tf.tasks.registry import TASKS
from albert_tf.training.finetune_settings import FinetuneSettings

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs/finetuning.md").read_text(encoding="utf-8")
CONFIGS = sorted((ROOT / "configs/finetune").glob("*.py"))
# `race.py` is for the models that few still use; the page shows `race_v2.py`.
SHOWN = [path for path in CONFIGS if path.stem != "race"]
TABLE = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.M)
# The first table has five columns, the second one three.
ROWS = {name: row.split(" | ") for name, row in TABLE if row.count(" | ") == 3}
FILES = {name for name, row in TABLE if row.count(" | ") == 1}


def flags_of(command):
    words = shlex.split(command.replace("\\\n", " "))
    return dict(w.removeprefix("--").split("=", 1) for w in words if "=" in w)


def commands(text, program):
    return re.findall(rf"^ *({program}(?:.*\\\n)*.*)$", text, re.M)


def row_of(task):
    return ROWS["race_v2" if task == "race" else task]


def test_every_task_has_its_rows():
    assert set(ROWS) == FILES == {path.stem for path in SHOWN}
    assert {name.removesuffix("_v2") for name in ROWS} == set(TASKS) - {"ax"}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_the_command_of_the_config_is_that_of_the_page(path):
    (recorded,) = commands(path.read_text(encoding="utf-8"), "python tools/finetune.py")
    from_mnli = path.stem in ("mrpc", "stsb", "rte")
    assert flags_of(recorded) == {
        "config": f"configs/finetune/{path.name}",
        "data_dir": ROWS[path.stem][-1].strip("`"),
        "init_checkpoint": "runs/mnli" if from_mnli else "albert_base",
        "output_dir": f"runs/{path.stem}",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_settings_that_the_page_states_are_those_of_the_config(path):
    values = load_experiment(path, FinetuneSettings)
    for name in ("doc_stride", "max_query_length", "max_qa_length"):
        number = re.search(rf"(\d+)[^.]*?\(`--{name}`\)|`--{name}` \((\d+)\)", PAGE)
        if name in values:
            assert values[name] == int(number[1] or number[2])


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.labels])
def test_the_order_of_labels_is_the_tasks(name):
    if name == "ax":
        return
    labels = row_of(name)[1]
    if tags := re.fullmatch(r"O, and B- and I- of (.*)", labels):
        shown = ["O", *(f"{p}-{kind}" for kind in tags[1].split(", ") for p in "BI")]
    else:
        shown = re.sub(r"\([^)]*\)", "", labels).replace(" ", "").split(",")
    assert tuple(shown) == TASKS[name].labels


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"ax"}))
def test_the_metric_that_selects_is_named(name):
    assert f"`{TASKS[name].selecting_metric}`" in row_of(name)[2]


def test_links_lead_to_headings():
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
