"""The tasks that have a name."""

from albert_tf.errors import require
from albert_tf.tasks import glue, multiple_choice, retrieval, squad, tagging
from albert_tf.tasks.task import SINGLE_LABEL, Recipe, Task

TASKS: dict[str, Task] = {
    task.name: task
    for family in (glue, squad, multiple_choice, tagging, retrieval)
    for task in family.TASKS
}


def find_task(name: str) -> Task:
    """Returns the task of that name; "SST-2" and "STS_B" are accepted spellings.

    Raises `UsageError` if there is no such task.
    """
    key = name.strip().lower().replace("-", "").replace("_", "")
    require(key in TASKS, f"task must be one of {', '.join(TASKS)}", name)
    return TASKS[key]


def find_recipe(name: str) -> Recipe:
    """Returns the recipe of a task, for training a classifier on a table.

    Raises `UsageError` if the task has no recipe, or if it is for another kind of task
    (stsb, squad1, ...): a classifier trained with such a row of Table 14 would look
    like a result of that task.
    """
    recipes = {
        task.name: task.recipe
        for task in TASKS.values()
        if task.recipe is not None and task.problem_type == SINGLE_LABEL
    }
    rule = f"recipe must be one of {', '.join(recipes)} (the tasks that classify texts)"
    require(name in recipes, rule, name)
    return recipes[name]
