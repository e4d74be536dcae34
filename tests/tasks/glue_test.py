"""The rows of GLUE: files, labels, metrics, recipes."""

import pytest

from albert_tf.heads import HEADS
from albert_tf.tasks import glue
from albert_tf.tasks.registry import TASKS, find_recipe
from albert_tf.tasks.tables import label_ids

# The first lines of the released files; a quote is a character like any other.
FILES = {
    "CoLA/train.tsv": 'gj04\t0\t*\tHe said " it.\n',
    "CoLA/dev.tsv": "gj04\t1\t\tIt is.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tIt is.\n",
    "SST-2/train.tsv": 'sentence\tlabel\nso " good\t1\n',
    "SST-2/test.tsv": "index\tsentence\n0\tgood\n",
    "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t7\t8\tan " a\tb\n',
    "MRPC/test.tsv": "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\ta\tb\n",
    "STS-B/train.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t"
    'sentence1\tsentence2\tscore\n0\tx\tx\tx\t1\tx\tx\ta " a\tb\t3.8\n',
    "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    '1\t2\t3\ta "\tb\t0\n',
    "QQP/test.tsv": "id\tquestion1\tquestion2\n0\ta\tb\n",
    "MNLI/train.tsv": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\t"
    "sentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\t"
    'label1\tgold_label\n0\t1\t1\tx\tx\tx\tx\tx\ta "\tb\tneutral\tneutral\n',
    "QNLI/dev.tsv": 'index\tquestion\tsentence\tlabel\n0\ta "\tb\tentailment\n',
    "RTE/dev.tsv": 'index\tsentence1\tsentence2\tlabel\n0\ta "\tb\tnot_entailment\n',
    "WNLI/test.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n",
    "diagnostic/diagnostic.tsv": "index\tsentence1\tsentence2\n0\ta\tb\n",
}
SOURCES = {
    source.file: (task, name, source)
    for task in glue.TASKS
    for name, source in task.splits.items()
}


@pytest.mark.parametrize("file", FILES)
def test_released_files_are_read(tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(FILES[file], encoding="utf-8")
    task, name, source = SOURCES[file]
    table = source.read(str(tmp_path))
    assert len(table) == 1
    assert (table.text_pairs is None) == (task.name in ("cola", "sst2"))
    if name.startswith("test"):
        assert table.labels is None
    elif task.labels:
        assert label_ids(table, task.labels)[0] in range(len(task.labels))
    else:
        assert float(table.labels[0]) == 3.8


def test_every_task_can_be_trained_or_predicted():
    assert len(TASKS) == len(glue.TASKS) == 10
    for task in TASKS.values():
        assert task.head in HEADS
        assert any(name.startswith("test") for name in task.splits)
        is_class = task.problem_type == "single_label_classification"
        assert is_class == bool(task.labels)


def test_metrics_are_those_of_the_leaderboard():
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 0, 0, 1]
    assert {
        name: list(task.metrics(labels, predictions)) for name, task in TASKS.items()
    } == {
        "cola": ["matthews"],
        "stsb": ["pearson", "spearman"],
        "sst2": ["accuracy"],
        "mnli": ["accuracy"],
        "qnli": ["accuracy"],
        "qqp": ["accuracy", "f1"],
        "rte": ["accuracy"],
        "mrpc": ["accuracy", "f1"],
        "wnli": ["accuracy"],
        "ax": ["matthews"],
    }
    assert TASKS["sst2"].metrics(labels, predictions) == {"accuracy": 0.8}
    assert TASKS["mnli"].metrics([0, 1, 2, 2], [0, 1, 2, 1])["accuracy"] == 0.75
    for task in TASKS.values():
        assert task.selecting_metric in task.metrics(labels, predictions)


def test_label_order_is_the_original_codes():
    assert TASKS["mnli"].labels == ("contradiction", "entailment", "neutral")
    assert TASKS["ax"].labels == TASKS["mnli"].labels
    assert TASKS["rte"].labels == ("entailment", "not_entailment")


def test_recipes_are_rows_of_table_14():
    """Epochs that reference implementations derive from steps and batch sizes."""
    train_rows = {"cola": 8551, "sst2": 67349, "rte": 2490, "mrpc": 3668}
    epochs = {
        name: round(recipe.num_train_steps * recipe.train_batch_size / rows)
        for name, rows in train_rows.items()
        for recipe in [find_recipe(name)]
    }
    assert epochs == {"cola": 10, "sst2": 10, "rte": 10, "mrpc": 7}
    assert find_recipe("qqp").dropout == 0.1
    assert {task.recipe.max_seq_length for task in TASKS.values() if task.recipe} == {
        512
    }
