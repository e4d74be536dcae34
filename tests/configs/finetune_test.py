"""The experiments of configs/finetune/ are those that their docstrings record."""

import ast
import dataclasses
import pathlib
import re
import shlex

import pytest

from albert_tf.settings import load_experiment
from albert_tf.tasks.registry import TASKS
from albert_tf.training.finetune_settings import FinetuneSettings

ROOT = pathlib.Path(__file__).parents[2]
PATHS = sorted((ROOT / "configs/finetune").glob("*.py"))
RECIPES = {name: task.recipe for name, task in TASKS.items() if task.recipe}
# The one exception of Table 14: the values of version 1 diverge.
RACE_V2 = dataclasses.replace(RECIPES["race"], learning_rate=1e-5, dropout=0.0)


def load(path):
    return load_experiment(path, FinetuneSettings)


def record(path):
    """Returns the docstring of a config as it is in the file."""
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    return text.split('"""')[1]


def command(path):
    """Returns the words of the command that a config records."""
    match = re.search(r"^ *(python tools/(?:.*\\\n)*.*)$", record(path), re.M)
    return shlex.split(match[1].replace("\\\n", " "))


def test_every_task_with_training_data_has_a_config():
    assert {path.stem for path in PATHS} == set(TASKS) - {"ax", "beir"} | {"race_v2"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_is_a_run_of_the_task_it_is_named_after(path):
    values = load(path)
    assert values["task"] == path.stem.removesuffix("_v2")
    words = command(path)
    assert words[:2] == ["python", "tools/finetune.py"]
    given = dict(word.removeprefix("--").split("=") for word in words[2:])
    assert given.pop("config") == path.relative_to(ROOT).as_posix()
    settings = FinetuneSettings(**{**values, **given})
    resolved = settings.resolved(1000)
    assert resolved.num_warmup_steps < resolved.num_train_steps


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_has_the_values_of_the_paper(path):
    values = load(path)
    recipe = RACE_V2 if path.stem == "race_v2" else RECIPES.get(path.stem)
    if recipe is None:
        assert re.search(r"not published for\s+ALBERT", record(path))
        return
    expected = dataclasses.asdict(recipe)
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_records_the_experiment(path):
    text = " ".join(record(path).split())
    for part in ("Command:", "Data:", "Settings:", "Hardware:", "Published", "Not run"):
        assert part in text


@pytest.mark.parametrize("name", ["mrpc", "rte", "stsb"])
def test_small_sets_start_from_the_model_of_mnli(name):
    folder = ROOT / "configs/finetune"
    mnli = next(w for w in command(folder / "mnli.py") if "--output_dir=" in w)
    start = mnli.replace("--output_dir=", "--init_checkpoint=")
    assert start in command(folder / f"{name}.py")
