"""docs/finetuning.md has a section for every task, with the commands of the configs."""

import pathlib
import re
import shlex

import pytest

from albert_tf.settings import load_experiment
from albert_tf.tasks.registry import TASKS
from albert_tf.training.finetuning.settings import FinetuneSettings

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs/finetuning.md").read_text(encoding="utf-8")
CONFIGS = sorted((ROOT / "configs/finetune").glob("*.py"))
# `race.py` is for the models that few still use; the page shows `race_v2.py`.
SHOWN = [path for path in CONFIGS if path.stem != "race"]
HEADINGS = {"sst2": "SST-2", "stsb": "STS-B", "squad1": "SQuAD 1.1"}
HEADINGS |= {"squad2": "SQuAD 2.0", "cola": "CoLA", "conll2003": "CoNLL-2003"}


def section(name):
    """Returns the section of a task, from its heading to the next one."""
    heading = HEADINGS.get(name, name.upper())
    found = re.search(rf"^### {re.escape(heading)}\n(.*?)^##", PAGE, re.M | re.S)
    assert found, f"no section {heading}"
    return found[1]


def flags_of(command):
    words = shlex.split(command.replace("\\\n", " "))
    return dict(w.removeprefix("--").split("=", 1) for w in words if "=" in w)


def commands(text, program):
    return re.findall(rf"^ *({program}(?:.*\\\n)*.*)$", text, re.M)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_section_with_a_command(name):
    assert commands(section(name), "albert-tf")


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_its_command_is_that_of_the_config(path):
    name = path.stem.removesuffix("_v2")
    (shown,) = commands(section(name), "albert-tf finetune")
    (recorded,) = commands(path.read_text(encoding="utf-8"), "python tools/finetune.py")
    assert flags_of(shown) == flags_of(recorded)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_settings_that_the_page_states_are_those_of_the_config(path):
    values = load_experiment(path, FinetuneSettings)
    text = section(path.stem.removesuffix("_v2"))
    for name in ("doc_stride", "max_query_length", "max_qa_length"):
        number = re.search(rf"(\d+)[^.]*?\(`--{name}`\)|`--{name}` \((\d+)\)", text)
        if name in values and number:
            assert values[name] == int(number[1] or number[2])


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.labels])
def test_the_order_of_labels_is_the_tasks(name):
    if name in ("ax", "conll2003", "wnut17"):
        return
    row = re.search(r"^\| labels \| (.*?) \|$", section(name), re.M)[1]
    shown = re.sub(r"\([^)]*\)", "", row).replace(" ", "").split(",")
    assert tuple(shown) == TASKS[name].labels


@pytest.mark.parametrize("name", ["conll2003", "wnut17"])
def test_the_tags_are_the_tasks(name):
    row = re.search(r"^\| tags \| O, and B- and I- of (.*?) \|$", section(name), re.M)
    kinds = [kind.strip() for kind in row[1].split(",")]
    assert ["O", *(f"{p}-{kind}" for kind in kinds for p in "BI")] == [
        *TASKS[name].labels
    ]


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"ax"}))
def test_the_metric_that_selects_is_named(name):
    assert f"`{TASKS[name].selecting_metric}`" in section(name)


def test_links_lead_to_headings():
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
