"""Prepared TFDS folders, written by TFDS itself; nothing is downloaded."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.tfds_source import read_tfds
from albert_tf.tasks.registry import TASKS
from albert_tf.tasks.texts.glue import tfds_splits
from albert_tf.tasks.texts.tables import (
    LabelledTableSettings,
    TableSettings,
    TfdsTableSource,
)
from albert_tf.tasks.texts.targets import make_targets

HUGGING_FACE = ["entailment", "neutral", "contradiction"]


def prepare(folder, name, config, version, features, splits):
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        config=config,
        version=version,
        data_dir=str(folder),
        features=tfds.features.FeaturesDict(features),
        split_datasets={key: list(enumerate(rows)) for key, rows in splits.items()},
        disable_shuffling=True,
    )


def nli_rows(labels, first=0):
    """Rows in an order that `idx` must put right."""
    rows = [
        {"premise": f"p{i}", "hypothesis": f"h{i}", "label": label, "idx": i}
        for i, label in enumerate(labels, first)
    ]
    return rows[::-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    nli = {
        "premise": tfds.features.Text(),
        "hypothesis": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=HUGGING_FACE),
        "idx": np.int32,
    }
    splits = {
        "train": nli_rows([0, 1, 2, 0, -1]),
        "validation_matched": nli_rows([2, 0]),
        "test_matched": nli_rows([-1] * 12),
    }
    prepare(path, "glue", "mnli", "2.0.0", nli, splits)
    stsb = {"sentence1": tfds.features.Text(), "sentence2": tfds.features.Text()}
    stsb |= {"label": np.float32, "idx": np.int32}
    row = {"sentence1": "a", "sentence2": "é", "label": 3.8, "idx": 0}
    prepare(path, "glue", "stsb", "1.0.0", stsb, {"train": [row]})
    sst2 = {"sentence": tfds.features.Text(), "idx": np.int32}
    sst2["label"] = tfds.features.ClassLabel(names=["positive", "negative"])
    rows = [{"sentence": "good", "label": 0, "idx": 0}]
    prepare(path, "glue", "sst2", "2.0.0", sst2, {"train": rows})
    tags = tfds.features.ClassLabel(names=["O", "B-X"])
    nested = {
        "tokens": tfds.features.Sequence(tfds.features.Text()),
        "ner": tfds.features.Sequence(tags),
        "answers": tfds.features.Sequence(
            {"text": tfds.features.Text(), "answer_start": np.int32}
        ),
        "is_impossible": np.bool_,
        "kind": {"level": tags},
    }
    row = {
        "tokens": ["a", "é"],
        "ner": ["O", "B-X"],
        "answers": {"text": ["x", "y"], "answer_start": [1, 2]},
        "is_impossible": True,
        "kind": {"level": "B-X"},
    }
    prepare(path, "my_set", None, "1.2.0", nested, {"train": [row]})
    prepare(path, "my_set", None, "1.10.0", nested, {"train": [row]})
    return str(path)


def test_rows_are_plain_python_values(folder):
    data = read_tfds("tfds:my_set:1.10.0", "train", folder)
    assert data.rows == [
        {
            "tokens": ["a", "é"],
            "ner": [0, 1],
            "answers": {"text": ["x", "y"], "answer_start": [1, 2]},
            "is_impossible": True,
            "kind": {"level": 1},
        }
    ]
    assert type(data.rows[0]["is_impossible"]) is bool
    assert data.class_names == {"ner": ("O", "B-X"), "kind/level": ("O", "B-X")}


def test_labels_are_mapped_by_name_and_rows_ordered_by_index(folder):
    task = TASKS["mnli"]
    sources = tfds_splits(task, "tfds:glue/mnli", folder)
    train = sources["train"].read("tfds:glue/mnli")
    assert train.texts == ["p0", "p1", "p2", "p3"]
    assert train.text_pairs == ["h0", "h1", "h2", "h3"]
    assert train.ids == ["0", "1", "2", "3"]
    assert make_targets(task, train).tolist() == [1, 2, 0, 1]
    assert train.skipped == {"rows without a label": 1}
    dev = sources["dev_matched"].read()
    assert dev.labels == ["contradiction", "entailment"]
    test = sources["test_matched"].read()
    assert test.labels is None
    assert test.ids == [str(i) for i in range(12)]


def test_names_of_glue_become_those_of_its_files(folder):
    source = tfds_splits(TASKS["sst2"], "tfds:glue/sst2", folder)["train"]
    assert source.read().labels == ["1"]


def test_another_version_is_refused_by_name(folder):
    source = tfds_splits(TASKS["stsb"], "tfds:glue/stsb", folder)["train"]
    message = "expected version 2.0.0, but .*stsb has 1.0.0; .*tfds:glue/stsb:1.0.0"
    with pytest.raises(DataError, match=message):
        source.read()
    chosen = tfds_splits(TASKS["stsb"], "tfds:glue/stsb:1.0.0", folder)["train"]
    table = chosen.read()
    assert float(table.labels[0]) == pytest.approx(3.8)
    assert table.text_pairs == ["é"]
    with pytest.raises(DataError, match="has the versions 1.2.0, 1.10.0; name one"):
        read_tfds("tfds:my_set", "train", folder)


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(
        DataError, match="not prepared in .*: expected the folder .*rte"
    ):
        read_tfds("tfds:glue/rte", "train", folder)
    with pytest.raises(DataError, match="not prepared"):
        read_tfds("tfds:glue/rte", "train", str(tmp_path / "none"))
    with pytest.raises(DataError, match="no split 'dev' in .*; its splits are train"):
        read_tfds("tfds:my_set:1.2.0", "dev", folder)
    for name in ("tfds:", "tfds:a/b/c", "tfds:../glue", "tfds:glue/mnli:new"):
        with pytest.raises(UsageError, match="expected"):
            read_tfds(name, "train", folder)


def test_another_task_of_glue_is_refused(folder):
    with pytest.raises(UsageError, match="task rte needs tfds:glue/rte, received"):
        tfds_splits(TASKS["rte"], "tfds:glue/mnli", folder)
    matched = tfds_splits(TASKS["mnli"], "tfds:glue/mnli_matched", folder)
    assert {name: source.split for name, source in matched.items()} == {
        "dev_matched": "validation",
        "test_matched": "test",
    }


def test_classes_and_features_that_differ_are_named(folder):
    names = {"good": "1", "bad": "0"}
    columns = LabelledTableSettings(text_column="sentence")
    source = TfdsTableSource("tfds:glue/sst2", "train", columns, names, folder)
    with pytest.raises(DataError, match="expected the classes good, bad .*, received"):
        source.read()
    own = TfdsTableSource("tfds:glue/sst2", "train", columns, data_dir=folder).read()
    assert own.labels == ["positive"]
    source = TfdsTableSource("tfds:glue/sst2", "train", TableSettings(), {}, folder)
    with pytest.raises(DataError, match="no feature 'text'; expected one of"):
        source.read()
