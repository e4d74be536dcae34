"""The rows of GLUE: files, labels, metrics, recipes."""

import pytest

from albert_tf.errors import DataError
from albert_tf.tasks import glue
from albert_tf.tasks.labels import make_targets
from albert_tf.tasks.registry import TASKS, find_recipe

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
    source.names[0]: (task, name, source)
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
        assert make_targets(task, table)[0] in range(len(task.labels))
    else:
        assert float(table.labels[0]) == 3.8


def test_metrics_are_those_of_the_leaderboard():
    """And every task can be predicted."""
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 0, 0, 1]
    names = {t.name: list(t.metrics(labels, predictions)) for t in glue.TASKS}
    expected = dict.fromkeys(("sst2", "mnli", "qnli", "rte", "wnli"), ["accuracy"])
    expected |= dict.fromkeys(("qqp", "mrpc"), ["accuracy", "f1"])
    expected |= dict.fromkeys(("cola", "ax"), ["matthews"])
    assert names == expected | {"stsb": ["pearson", "spearman"]}
    assert TASKS["sst2"].metrics(labels, predictions) == {"accuracy": 0.8}
    assert TASKS["mnli"].metrics([0, 1, 2, 2], [0, 1, 2, 1])["accuracy"] == 0.75
    for task in glue.TASKS:
        assert any(name.startswith("test") for name in task.splits)


def test_label_order_is_the_original_codes():
    assert TASKS["mnli"].labels == ("contradiction", "entailment", "neutral")
    assert TASKS["ax"].labels == TASKS["mnli"].labels
    assert TASKS["rte"].labels == ("entailment", "not_entailment")


def test_recipes_are_rows_of_table_14():
    """Epochs that reference implementations derive from steps and batch sizes."""
    for name, rows, epochs in (
        ("cola", 8551, 10),
        ("sst2", 67349, 10),
        ("rte", 2490, 10),
        ("mrpc", 3668, 7),
    ):
        recipe = find_recipe(name)
        trained = recipe.num_train_steps * recipe.train_batch_size
        assert round(trained / rows) == epochs, name
    assert find_recipe("qqp").dropout == 0.1
    assert {task.recipe.max_seq_length for task in glue.TASKS if task.recipe} == {512}


def read(tmp_path, task, split, text, file=None):
    """Reads a split from a file in the task's own folder."""
    source = TASKS[task].splits[split]
    path = tmp_path / (file or source.names[0].rpartition("/")[2])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return source.read(str(tmp_path))


def test_the_data_folder_is_all_of_glue_or_the_tasks_own(tmp_path):
    text = FILES["SST-2/train.tsv"]
    assert read(tmp_path, "sst2", "train", text).texts == ['so " good']
    text, file = text.replace("good", "bad"), "SST-2/train.tsv"
    assert read(tmp_path, "sst2", "train", text, file).texts == ['so " bad']
    diagnostic = FILES["diagnostic/diagnostic.tsv"]
    assert read(tmp_path, "ax", "test", diagnostic, "AX.tsv").ids == ["0"]
    with pytest.raises(DataError, match="no file RTE/train.tsv or train.tsv"):
        TASKS["rte"].splits["train"].read(str(tmp_path / "none"))


MNLI_TEXTS = "i\tpr\tpa\tg\tp\tp\tp\tp\tsentence1\tsentence2"


@pytest.mark.parametrize("annotators", [1, 5])
def test_the_last_column_is_the_label(tmp_path, annotators):
    header = "".join(f"\tlabel{i}" for i in range(1, annotators + 1))
    row = MNLI_TEXTS.replace("sentence1", 'a "b').replace("sentence2", "c")
    others = "\tneutral" * annotators
    labels = "entailment", "-", "contradiction"
    rows = "".join(f"{row}{others}\t{gold}\r\n" for gold in labels)
    text = f"{MNLI_TEXTS}{header}\tgold_label\r\n{rows}"
    table = read(tmp_path, "mnli", "dev_matched", text)
    assert table.labels == ["entailment", "contradiction"]
    assert table.texts == ['a "b'] * 2
    # Where the annotators did not agree there is no label.
    assert table.skipped == {"rows labelled '-'": 1}
    assert make_targets(TASKS["mnli"], table).tolist() == [1, 0]


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_short_rows_of_qqp(tmp_path, caplog):
    rows = "5\t1\t2\ta\tb\t1\n6\t1\t2\tbroken\nrest\t1\n7\t1\t2\tc\td\t0\n"
    train = read(tmp_path, "qqp", "train", QQP + rows)
    assert (train.texts, train.labels) == (["a", "c"], ["1", "0"])
    assert train.skipped == {"short rows": 2}
    assert "train.tsv: short rows 2" in caplog.text
    rows = "0\ta\tb\n1\tbroken\n2\n3\tc\td\n"
    test = read(tmp_path, "qqp", "test", "id\tquestion1\tquestion2\n" + rows)
    assert test.ids == ["0", "1", "2", "3"]
    assert test.texts == ["a", "broken", "", "c"]
    assert test.text_pairs == ["b", "", "", "d"]
    assert sum(test.skipped.values()) == 2
    assert "test.tsv: rows of another width, filled or cut 2" in caplog.text


def test_files_of_which_nothing_is_left(tmp_path):
    with pytest.raises(DataError, match=r"received none \(short rows 1\)"):
        read(tmp_path, "qqp", "train", QQP + "1\t2\n")
    text = "sentence1\tsentence2\tgold_label\na\tb\t-\n"
    with pytest.raises(DataError, match=r"no row is left \(rows labelled '-' 1\)"):
        read(tmp_path, "mnli", "train", text)


def test_quotes_enclose_cells_of_csv(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text('sentence,label\n"""Good,"" he said",1\n')
    found = TASKS["sst2"].splits["train"].read_file(str(path))
    assert (found.texts, found.labels) == (['"Good," he said'], ["1"])


def test_cola_with_a_header(tmp_path, caplog):
    text = "source\tlabel\tstar\tsentence\ngj\t1\t\tIt is.\ngj\t0\t*\tIs.\n"
    table = read(tmp_path, "cola", "dev", text)
    assert (table.labels, table.lines, table.ids) == (["1", "0"], [2, 3], ["0", "1"])
    assert table.skipped == {"header lines": 1}
    assert "dev.tsv: line 1 is a header (its label is 'label')" in caplog.text
    # So it is when the file is given by itself, as --dev_file and --eval_file are.
    given = TASKS["cola"].splits["dev"].read_file(str(tmp_path / "dev.tsv"))
    assert (given.texts, given.skipped) == (table.texts, table.skipped)
    # Anything else in place of the first label is no header.
    twice = text.splitlines(keepends=True)[0] + text
    for other in (text.replace("label", "2"), twice):
        table = read(tmp_path, "cola", "dev", other)
        assert table.labels[-2:] == ["1", "0"]
        with pytest.raises(DataError, match="line 1: expected one of the labels 0, 1"):
            make_targets(TASKS["cola"], table)


def test_test_files_name_their_rows(tmp_path):
    table = read(tmp_path, "wnli", "test", "index\tsentence1\tsentence2\n7\ta\tb\n")
    assert table.ids == ["7"]


def test_mrpc_as_microsoft_ships_it(tmp_path):
    """Other names, tabs in a .txt, labels in the test file, no dev file."""
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = '1\t7\t8\tA "b\tc\r\n0\t7\t9\td\te\r\n'
    splits = TASKS["mrpc"].splits
    for name in ("train", "test"):
        path = tmp_path / f"msr_paraphrase_{name}.txt"
        path.write_text(header + rows, newline="", encoding="utf-8")
        source = splits[name]
        for table in (source.read(str(tmp_path)), source.read_file(str(path))):
            assert table.labels == ["1", "0"] and table.ids == ["0", "1"]
            assert table.texts == ['A "b', "d"] and table.text_pairs == ["c", "e"]
    with pytest.raises(DataError, match=r"dev\.tsv"):
        splits["dev"].read(str(tmp_path))
