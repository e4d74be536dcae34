"""Names of tasks and of recipes."""

import pytest

from albert_tf.errors import UsageError
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
