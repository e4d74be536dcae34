"""Names of tasks and of recipes, and the record of a task in a model."""

import types

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import saved
from albert_tf.tasks.registry import TASKS, find_recipe, find_task


def test_tasks_are_found_by_any_spelling():
    assert find_task("SST-2") is TASKS["sst2"]
    names = ["cola", "CoLA", "STS-B", "sts_b", "MNLI", "QQP", "AX", " rte"]
    found = [find_task(name).name for name in names]
    assert " ".join(found) == "cola cola stsb stsb mnli qqp ax rte"
    with pytest.raises(UsageError, match="one of cola, stsb, .*, received 'squad'"):
        find_task("squad")


@pytest.mark.parametrize("name", ["stsb", "squad1", "race", "ax", "x"])
def test_recipes_of_other_kinds_of_tasks_are_refused(name):
    rule = f"recipe must be one of cola, sst2, .*, received '{name}'"
    with pytest.raises(UsageError, match=rule):
        find_recipe(name)


@pytest.mark.parametrize(
    "record",
    [
        {"name": "race", "options": {"max_seq_length": "24"}},
        {"name": "race", "options": 3},
        {"name": "table", "table": {"text_column": 3}},
        {"name": "table", "written": "x"},
    ],
)
def test_a_damaged_record_of_a_task_is_one_line(record):
    config = types.SimpleNamespace(max_position_embeddings=32)
    model = types.SimpleNamespace(task=record, config=config)
    with pytest.raises(DataError, match="not a record of a task: {'name': ") as caught:
        saved.task_of(model, "multiple_choice", None)
    assert "\n" not in str(caught.value)
