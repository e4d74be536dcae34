"""Class ids get names from flags, files and the headers of Hugging Face's sets."""

import json
import types

import pyarrow as pa
import pytest
from pyarrow import parquet

from albert_tf.errors import DataError
from albert_tf.tasks import opening, saved
from albert_tf.training.finetune_settings import FinetuneSettings

TAGS = ("O", "B-PER", "I-PER")
WORDS = [["Ada", "Lovelace", "lives"], ["Rome"], ["Ada"]]
IDS = [[1, 2, 0], [0], [1]]
NAMES = [["B-PER", "I-PER", "O"], ["O"], ["B-PER"]]
NEWS = ("World", "Sports", "Business", "Sci/Tech")
CLASS = {"names": list(TAGS), "_type": "ClassLabel"}


def settings(path, **changes):
    places = {"output_dir": "o", "init_checkpoint": "c", "train_file": str(path)}
    return FinetuneSettings(**places, **changes)


def write_tags(folder, ids=IDS, key="ner_tags"):
    rows = [{"tokens": w, key: i} for w, i in zip(WORDS, ids, strict=True)]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_news(folder, ids=(1, 2, 3, 4)):
    """AG News as its authors ship it."""
    path = folder / "train.csv"
    path.write_text("".join(f'"{i}","title","text {i}"\n' for i in ids))
    return path


def write_parquet(folder, column, values, feature):
    table = pa.table({"tokens": WORDS, "text": ["x", "y", "z"], column: values})
    header = json.dumps({"info": {"features": {column: feature}}})
    path = folder / "train.parquet"
    parquet.write_table(table.replace_schema_metadata({"huggingface": header}), path)
    return path


@pytest.mark.parametrize("source", ["labels", "labels.txt", "dataset_info.json"])
def test_tags_of_hugging_face(tmp_path, source):
    path, given = write_tags(tmp_path), {}
    if source == "labels":
        given["labels"] = TAGS
    elif source == "labels.txt":
        (tmp_path / source).write_text("\n".join(TAGS) + "\n")
    else:
        info = {"features": {"ner_tags": {"feature": CLASS, "_type": "List"}}}
        (tmp_path / source).write_text(json.dumps(info))
    task, examples = opening.open_task(settings(path, dev_file=str(path), **given))
    assert task.head == "token_classifier" and task.selecting_metric == "f1"
    assert task.labels == TAGS and examples["train"].labels == NAMES
    assert examples["dev"].labels == NAMES
    assert opening.read_split(task, settings(path), "dev", str(path)).labels == NAMES


@pytest.mark.parametrize("feature", [{"feature": CLASS}, [CLASS]])
def test_classes_in_the_metadata_of_parquet(tmp_path, feature):
    path = write_parquet(tmp_path, "label", [0, 2, 1], CLASS)
    _, examples = opening.open_task(settings(path, table_kind="texts"))
    assert examples["train"].labels == ["O", "I-PER", "B-PER"]
    path = write_parquet(tmp_path, "ner_tags", IDS, feature)
    # A task with tags; the order of the classes; other names; tags that become IOB2.
    for changes, labels, expected in (
        ({}, TAGS, NAMES[2]),
        ({"task": "conll2003"}, TAGS, NAMES[2]),
        ({"labels": TAGS[::-1]}, TAGS[::-1], NAMES[2]),
        ({"labels": ("O", "B-X", "I-X")}, ("O", "B-X", "I-X"), ["B-X"]),
        ({"labels": ("O", "S-X", "E-X")}, ("O", "B-X"), ["B-X"]),
    ):
        task, examples = opening.open_task(settings(path, **changes))
        assert task.labels[: len(labels)] == labels
        assert examples["train"].labels[2] == expected


def test_tags_without_names_are_refused(tmp_path):
    with pytest.raises(DataError, match="class ids, 0, 1, 2, without names.*--labels="):
        opening.open_task(settings(write_tags(tmp_path)))
    task, _ = opening.open_task(settings(write_tags(tmp_path), labels=("0", "1", "2")))
    assert task.labels == ("0", "1", "2")


def test_classes_that_count_from_1(tmp_path):
    columns = {"header": False, "label_column": "0", "text_column": "2"}
    path = write_news(tmp_path)
    task, examples = opening.open_task(settings(path, labels=NEWS, **columns))
    assert task.labels == NEWS and examples["train"].labels == list(NEWS)
    (tmp_path / "classes.txt").write_text("\n".join(NEWS))
    assert opening.open_task(settings(path, **columns))[0].labels == NEWS
    # A model knows the ids again, although here they could be counted from 0.
    task = saved_and_read(task)
    assert task.written == dict(zip("1234", NEWS, strict=True))
    path = write_news(tmp_path, (1, 3))
    found = opening.read_split(task, settings(path, **columns), "dev", str(path))
    assert found.labels == ["World", "Business"]


@pytest.mark.parametrize("ids", [(1, 2, 3), (0, 4), (2, 5)])
def test_ids_that_the_names_do_not_fit(tmp_path, ids):
    columns = {"header": False, "label_column": "0", "text_column": "2"}
    path = write_news(tmp_path, ids)
    with pytest.raises(DataError, match=f"ids from {ids[0]} to .* fit --labels: exp"):
        opening.open_task(settings(path, labels=NEWS, **columns))


def test_several_classes_per_text_and_choices(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": [0, 2]}\n{"text": "y", "label": []}\n')
    _, examples = opening.open_task(settings(path, labels=TAGS))
    assert examples["train"].labels == [("O", "I-PER"), ()]
    row = '{"context": "c", "choice1": "a", "choice2": "b", "label": %d}\n'
    path.write_text(row % 1 + row % 2)
    with pytest.raises(DataError, match="--labels=1,2"):
        opening.open_task(settings(path))
    task, examples = opening.open_task(settings(path, labels=("1", "2")))
    assert examples["train"].labels == [0, 1]
    task = saved_and_read(task)
    assert opening.read_split(task, settings(path), "dev", str(path)).labels == [0, 1]


def saved_and_read(task):
    record = json.loads(json.dumps(saved.describe(task)))
    config = types.SimpleNamespace(max_position_embeddings=512)
    model = types.SimpleNamespace(labels=task.labels, task=record, config=config)
    return saved.task_of(model, task.head, task.problem_type)
