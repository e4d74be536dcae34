"""Prepared TFDS folders, written by TFDS itself; nothing is downloaded."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from albert_tf.errors import DataError, UsageError
from albert_tf.tables.tfds_source import read_tfds

ROW = {
    "tokens": ["a", "é"],
    "ner": [0, 1],
    "answers": {"text": ["x", "y"], "answer_start": [1, 2]},
    "is_impossible": True,
    "kind": {"level": 1},
    "options": [["a"], ["b", "c"]],
}


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    tags = tfds.features.ClassLabel(names=["O", "B-X"])
    text, several = tfds.features.Text(), tfds.features.Sequence
    nested = {
        "tokens": several(text),
        "ner": several(tags),
        "answers": several({"text": text, "answer_start": np.int32}),
        "is_impossible": np.bool_,
        "kind": {"level": tags},
        "options": several(several(text)),
    }
    row = ROW | {"ner": ["O", "B-X"], "kind": {"level": "B-X"}}
    prepare(path, "my_set", None, "1.2.0", nested, {"train": [row]})
    prepare(path, "my_set", None, "1.10.0", nested, {"train": [row]})
    return str(path)


def test_rows_are_plain_python_values(folder):
    data = read_tfds("tfds:my_set:1.10.0", "train", folder)
    assert data.rows == [ROW]
    assert type(data.rows[0]["is_impossible"]) is bool
    assert data.class_names == {"ner": ("O", "B-X"), "kind/level": ("O", "B-X")}


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(DataError, match="has the versions 1.2.0, 1.10.0; name one"):
        read_tfds("tfds:my_set", "train", folder)
    for place in (folder, str(tmp_path / "none")):
        with pytest.raises(DataError, match="not prepared .*expected the folder .*rte"):
            read_tfds("tfds:glue/rte", "train", place)
    with pytest.raises(DataError, match="no split 'dev' in .*; its splits are train"):
        read_tfds("tfds:my_set:1.2.0", "dev", folder)
    for name in ("tfds:", "tfds:a/b/c", "tfds:../glue", "tfds:glue/mnli:new"):
        with pytest.raises(UsageError, match="expected"):
            read_tfds(name, "train", folder)
