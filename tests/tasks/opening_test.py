"""Opening the data of tasks: folders, files of one's own, refusals."""

import dataclasses
import json
import pathlib

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.errors import DataError, MissingFileError, UsageError
from albert_tf.tasks import opening, registry
from albert_tf.tasks import task as task_module
from albert_tf.tasks.multiple_choice import choice_task
from albert_tf.tasks.own_files import OwnFileSettings, find_kind
from albert_tf.tasks.tagging import tagging_task
from albert_tf.training.finetune_settings import FinetuneSettings
from tests.tiny import GOLDEN

OWN_FILE = {"task": "table", "data_dir": "", "train_file": "x"}


def settings(**changes):
    places = {"output_dir": "o", "init_checkpoint": "c"}
    places |= {} if "data_dir" in changes else {"train_file": "t"}
    return FinetuneSettings(**{**places, **changes})


def portions_of(task, path):
    return opening.open_portions(task, opening.DataSettings(), "test", path)


def write_glue(folder, splits=("train", "dev", "test")):
    (folder / "SST-2").mkdir(parents=True)
    for split in splits:
        labelled = split != "test"
        header = "sentence\tlabel" if labelled else "index\tsentence"
        rows = ["text 0\t0", "text 1\t1", "text 2\t0"] if labelled else ["0\ttext 0"]
        (folder / "SST-2" / f"{split}.tsv").write_text("\n".join([header, *rows, ""]))
    return str(folder)


def test_a_folder_of_official_files(tmp_path):
    """Only the training examples must be there."""
    folder = write_glue(tmp_path / "a")
    task, examples = opening.open_task(settings(task="SST-2", data_dir=folder))
    assert task.name == "sst2" and list(examples) == ["train", "dev", "test"]
    assert examples["dev"].labels == ["0", "1", "0"]
    assert examples["test"].labels is None
    folder = write_glue(tmp_path / "b", ["train"])
    _, examples = opening.open_task(settings(task="sst2", data_dir=folder))
    assert list(examples) == ["train"]
    folder = write_glue(tmp_path / "c", ["dev"])
    with pytest.raises(MissingFileError, match=r"train\.tsv"):
        opening.open_task(settings(task="sst2", data_dir=folder))


def test_files_in_the_form_of_a_task(tmp_path):
    write_glue(tmp_path)
    path = str(tmp_path / "SST-2" / "dev.tsv")
    _, examples = opening.open_task(settings(task="sst2", train_file=path))
    assert len(examples["train"]) == 3
    article = {"article": "a", "questions": ["q"], "options": [list("abcd")]}
    path = tmp_path / "middle.txt"
    path.write_text(json.dumps(article | {"answers": ["D"], "id": "middle1"}))
    _, examples = opening.open_task(settings(task="race", train_file=str(path)))
    assert examples["train"].labels == [3]
    assert examples["train"].groups == ["middle"]


def test_questions_to_predict_are_in_the_form_of_the_dev_set():
    task = registry.find_task("squad2")
    path = str(GOLDEN / "squad" / "dev-v2.0.json")
    for split in ("test", "dev"):
        assert len(opening.read_split(task, settings(), split, path)) > 3
    with pytest.raises(UsageError, match="no split 'other'"):
        opening.read_split(task, settings(), "other", path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_column": "x"}, "text_column: only for files of your own"),
        ({"quoting": False}, "quoting: only for files of your own"),
        ({"labels": ("a", "b")}, "labels: only for files of your own"),
        ({"task": "sst3"}, "task must be one of"),
        ({"task": "table"}, "data_dir: only with a task"),
        ({**OWN_FILE, "labels": ("a", "a")}, "at least 2 different names, received a"),
        (
            {"train_file": "tfds:glue/sst2", "data_dir": ""},
            "train_file: .* --data_dir=tfds:glue/sst2",
        ),
    ],
)
def test_refusals(tmp_path, changes, message):
    values = {"task": "sst2", "data_dir": str(tmp_path), **changes}
    with pytest.raises(UsageError, match=message):
        opening.open_task(settings(**values))


CONLL = "Anna B-PER\nruns O\n\nshe O\n"
CHOICES = '{"context": "c", "choices": ["a", "b"], "label": 1}\n'


@pytest.mark.parametrize(
    ("name", "content", "head"),
    [
        ("a.tsv", "text\tlabel\nx\ta\ny\tb\n", "text_classifier"),
        ("a.csv", "context,choice0,choice1,label\nx,a,b,0\n", "multiple_choice"),
        ("a.conll", CONLL, "token_classifier"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["X"]}\n' * 2, "token_classifier"),
        ("b.jsonl", CHOICES, "multiple_choice"),
    ],
)
def test_the_kind_of_a_file_of_ones_own(tmp_path, name, content, head):
    (tmp_path / name).write_text(content.replace("X", "O", 1))
    task, examples = opening.open_task(settings(train_file=str(tmp_path / name)))
    assert task.head == head and task.name == "table"
    assert len(examples["train"]) >= 1


def test_a_kind_that_is_given_decides(tmp_path):
    (tmp_path / "a.txt").write_text(CONLL)
    path = str(tmp_path / "a.txt")
    task, _ = opening.open_task(settings(train_file=path, table_kind="tokens"))
    assert task.labels == ("O", "B-PER")
    with pytest.raises(DataError, match="no column 'label'"):
        opening.open_task(settings(train_file=path))


def test_what_is_read_in_another_form_names_the_way(tmp_path):
    path = tmp_path / "a.jsonl"
    rule = "precedes the choices; expected 'context'.*--context_column"
    for name in ("text", "question"):
        path.write_text(CHOICES.replace("context", name))
        with pytest.raises(DataError, match=rule):
            opening.open_task(settings(train_file=str(path)))
    named = settings(train_file=str(path), context_column="question")
    task, _ = opening.open_task(named)
    assert task.head == "multiple_choice"
    table = tmp_path / "t.csv"
    table.write_text("text,answer1,answer2\na,0,1\n")
    for given, file in (
        ({"text_column": "question"}, path),
        ({"label_columns": ("answer1", "answer2")}, table),
    ):
        assert find_kind(OwnFileSettings(**given), str(file)) == "texts"
    path.write_text('{"text": "Ann was", "label": [[0, 3, "PER"]]}\n')
    with pytest.raises(DataError, match="spans of characters.* tokens and tags"):
        opening.open_task(settings(train_file=str(path)))
    path = tmp_path / "a.csv"
    path.write_text('text,label\na,"[0, 1]"\nb,"[1, 0]"\n')
    with pytest.raises(DataError, match="line 2: label: .* a list as text.*separator"):
        opening.open_task(settings(train_file=str(path)))


TAGS = [(f"a{i} b", f"O {tag}") for i, tag in enumerate(("O", "I-X", "B-X", "O", "O"))]
TAG_ROWS = [{"tokens": w.split(), "tags": t.split()} for w, t in TAGS]
CHOICE_ROWS = [
    {"context": f"c{i}", "choice0": "x", "choice1": "y", "label": "1"} for i in range(5)
]
TAGGED = (tagging_task("table", ("O", "B-X", "I-X")), TAG_ROWS)
OWN = dict.fromkeys(("a.conll", "a.jsonl", "a.parquet"), TAGGED)
OWN |= dict.fromkeys(("b.csv", "b.jsonl"), (choice_task("table"), CHOICE_ROWS))


def write_rows(path, rows):
    if path.endswith(".conll"):
        words = [zip(row["tokens"], row["tags"], strict=False) for row in rows]
        text = "\n".join("".join(f"{w}\t{t}\n" for w, t in row) for row in words)
    elif path.endswith(".csv"):
        lines = [rows[0], *(row.values() for row in rows)]
        text = "".join(",".join(line) + "\n" for line in lines)
    elif path.endswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        table = pyarrow.Table.from_pylist(rows)
        return parquet.write_table(table, path, row_group_size=2)
    return pathlib.Path(path).write_text(text)


@pytest.mark.parametrize("name", OWN)
def test_rows_to_predict_are_read_in_portions(tmp_path, name, monkeypatch):
    """All portions are the whole; of a large file, a row is read when asked for."""
    monkeypatch.setattr(task_module, "_SMALL", 0)
    (task, rows), path = OWN[name], str(tmp_path / name)
    write_rows(path, rows)
    whole = opening.read_split(task, opening.DataSettings(), "test", path)
    source = portions_of(task, path)
    parts = list(source.portions(2))
    assert [len(part) for part in parts] == [2, 2, 1] and source.fraction() == 1
    places = ["tokens"] if "a." in name else ["where"]
    for field in ("ids", "labels", *places):
        joined = [value for part in parts for value in getattr(part, field)]
        assert joined == getattr(whole, field)
    bad = {"tokens": ["a", "b"], "tags": ["", "O"], "choice0": ""}
    write_rows(path, [*rows[:4], {key: bad.get(key, rows[4][key]) for key in rows[4]}])
    portions = portions_of(task, path).portions(2)
    assert [len(next(portions)) for _ in range(2)] == [2, 2]
    where = r"(line (6|5|13)|row 5): "
    with pytest.raises(DataError, match=where):
        next(portions)
    monkeypatch.undo()
    with pytest.raises(DataError, match=where):  # of a small file, at once
        portions_of(task, path)
    skip = opening.DataSettings(on_bad_input="skip")
    (kept,) = opening.open_portions(task, skip, "test", path).portions(9)
    assert [bool(x) for x in kept.problems] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("b.jsonl", {"label": "1"}, "line 3: the column 'label' begins here; expected"),
        ("b.jsonl", {"choice2": "z"}, "line 3: the column 'choice2' begins here"),
        ("b.jsonl", {"choice1": ""}, r"line 3: expected at least 2 .*received 1$"),
        ("b.csv", {"label": "1"}, "line 4: an answer, while the first .* have none"),
        ("a.jsonl", {"tags": ["O", "O"]}, "line 3: the column 'tags' begins here"),
        ("a.parquet", {"tags": ["O", "O"]}, "row 3: expected no tags, as in the rows"),
    ],
)
def test_a_later_row_that_differs_is_named(tmp_path, monkeypatch, name, given, message):
    monkeypatch.setattr(task_module, "_SMALL", 0)
    (task, rows), path = OWN[name], str(tmp_path / name)
    empty = {"label": "", "tags": None}
    rows = [{k: empty.get(k, v) for k, v in row.items()} for row in rows]
    if name.endswith("jsonl"):
        rows = [{k: v for k, v in row.items() if k not in empty} for row in rows]
    write_rows(path, [*rows[:2], rows[2] | given])
    portions = portions_of(task, path).portions(2)
    assert next(portions).labels is None
    with pytest.raises(DataError, match=message):
        next(portions)


def test_class_ids_of_tags_have_names_in_every_portion(tmp_path):
    task = dataclasses.replace(OWN["a.jsonl"][0], written={"1": "B-X", "0": "O"})
    path = str(tmp_path / "a.jsonl")
    write_rows(path, [{"tokens": ["a"], "tags": [str(i)]} for i in (0, 1, 1)])
    parts = portions_of(task, path).portions(1)
    assert [part.labels for part in parts] == [[["O"]], *[[["B-X"]]] * 2]


@pytest.mark.parametrize("name", ["table", "conll2003"])
def test_class_ids_of_tags_count_from_what_is_in_the_whole_file(tmp_path, name):
    conll = registry.find_task("conll2003")
    task = dataclasses.replace(OWN["a.jsonl"][0], name=name, splits=conll.splits)
    path = str(tmp_path / "a.jsonl")
    write_rows(path, [{"tokens": ["a"], "tags": [i]} for i in (1, 2, 0)])
    (tmp_path / "labels.txt").write_text("O\nB-X\nI-X\nB-Y\n")
    labels = [part.labels for part in portions_of(task, path).portions(1)]
    assert labels == [[["B-X"]], [["B-X"]], [["O"]]]


def test_nulls_may_begin_later(tmp_path):
    task, path = OWN["b.jsonl"][0], str(tmp_path / "a.jsonl")
    bare = {k: v for k, v in CHOICE_ROWS[0].items() if k != "label"}
    write_rows(path, [bare, bare | {"label": None, "choice2": None}])
    parts = portions_of(task, path).portions(1)
    assert [part.labels for part in parts] == [None, None]


def test_a_folder_with_a_folder_per_class(tmp_path):
    """As Stanford's reviews: with texts without labels, and other files."""
    folder = tmp_path / "train"
    for name in ("pos/7_9.txt", "neg/0_3.txt", "neg/1_1.txt", "unsup/2_0.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text of {name}")
    (folder / "labeledBow.feat").write_text("9 0:9")
    chosen = settings(train_file=str(folder), id_column="file")
    task, examples = opening.open_task(chosen)
    train = examples["train"]
    assert task.labels == ("neg", "pos") and train.labels == ["neg", "neg", "pos"]
    assert train.ids == ["neg/0_3.txt", "neg/1_1.txt", "pos/7_9.txt"]
    assert train.texts[2] == "text of pos/7_9.txt"
    assert train.where(0).endswith("train: file neg/0_3.txt")
    chosen = opening.DataSettings(id_column="file")
    portions = opening.open_portions(task, chosen, "test", str(folder)).portions(9)
    assert [len(portion) for portion in portions] == [4]
    (folder / "pos" / "8_8.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"8_8.txt: line 1: not UTF-8"):
        opening.open_task(settings(train_file=str(folder)))
    found = opening.open_task(settings(train_file=str(folder), on_bad_input="skip"))
    assert found[1]["train"].skipped["files that are not text"] == 1


def test_vectors_over_classes_have_names(tmp_path):
    rows = [[0, 0, 1], [1.0, 0.0, 1.0], [0, 0, 0]]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "x", "label": r}) + "\n" for r in rows))
    values = settings(train_file=str(path), dev_file=str(path), labels=("c", "b", "a"))
    task, examples = opening.open_task(values)
    assert task.labels == ("c", "b", "a")
    assert task.problem_type == "multi_label_classification"
    assert examples["dev"].labels == [("a",), ("c", "a"), ()]
    again = opening.read_split(task, settings(), "dev", str(path))
    assert again.labels == examples["dev"].labels
    with pytest.raises(DataError, match="expected 0 or 1 for each of c, b, received"):
        opening.open_task(dataclasses.replace(values, labels=("c", "b")))
    with pytest.raises(DataError, match="--labels=A,B,... names the classes"):
        opening.open_task(dataclasses.replace(values, labels=()))
    path.write_text('{"text": "x", "label": [0, 2, 0]}\n')
    with pytest.raises(DataError, match="0 or 1 for each of c, b, a, received .*2"):
        opening.open_task(values)


def test_class_ids_with_a_decimal_point_have_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1.0\nb,0\n")
    values = settings(train_file=str(path), labels=("neg", "pos"))
    assert opening.open_task(values)[1]["train"].labels == ["pos", "neg"]


def test_a_column_for_each_label(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,toxic,obscene,x\na,1,0,y\nb,0,0.0,y\nc,true,1,y\n")
    values = settings(train_file=str(path), label_columns=("toxic", "obscene"))
    task, examples = opening.open_task(values)
    assert task.labels == ("toxic", "obscene")
    assert examples["train"].labels == [("toxic",), (), ("toxic", "obscene")]
    with pytest.raises(DataError, match="expected one of text, .*--label_columns=A,B"):
        opening.open_task(settings(train_file=str(path)))
    other = dataclasses.replace(values, label_columns=("toxic", "x"))
    with pytest.raises(DataError, match="line 2: label_columns: expected 0 or 1 in x"):
        opening.open_task(other)
    with pytest.raises(UsageError, match="label_columns: expected different names"):
        opening.open_task(dataclasses.replace(values, label_columns=("x", "x")))
    twice = settings(train_file=str(path), choice_columns=("x", "x"))
    with pytest.raises(UsageError, match="choice_columns: expected different names"):
        opening.open_task(twice)
    with pytest.raises(UsageError, match="label_columns: name the labels"):
        opening.open_task(dataclasses.replace(values, labels=("a", "b")))
