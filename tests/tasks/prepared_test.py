"""Tasks from prepared TFDS folders with the features of the real sets."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import opening
from albert_tf.tasks.registry import find_task
from albert_tf.training.finetune_settings import FinetuneSettings
from tests.tables.tfds_source_test import prepare

TEXT = tfds.features.Text
SEQUENCE = tfds.features.Sequence
CLASSES = tfds.features.ClassLabel
PARTS = ("matched", "mismatched")
TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]


def rows_of(keys, labels):
    """A row per label; a dict has their indices, too."""
    pairs = labels.items() if isinstance(labels, dict) else enumerate(labels)
    return [
        {key: f"{key[0]}{i}" for key in keys} | {"label": label, "idx": i}
        for i, label in pairs
    ]


def write_glue(path):
    nli, pair = ("premise", "hypothesis"), ("sentence1", "sentence2")
    one = ("sentence",)

    def write(name, config, keys, label, version="2.0.0", **splits):
        features = dict.fromkeys(keys, TEXT()) | {"label": label, "idx": np.int32}
        splits = {split: rows_of(keys, labels) for split, labels in splits.items()}
        prepare(path, name, config, version, features, splits)

    classes = CLASSES(names=["entailment", "neutral", "contradiction"])
    # In an order that `idx` must put right; -1 is no label.
    splits = {"train": {4: 1, 6: -1, 0: 0, 1: 1, 2: 2, 3: 0, 5: 2}}
    splits |= {"validation_matched": [2, 0], "validation_mismatched": [1]}
    splits |= {"test_matched": {1: -1, 0: -1}, "test_mismatched": [-1]}
    write("glue", "mnli", nli, classes, **splits)
    write("glue", "ax", nli, classes, test={1: -1, 0: -1})
    write("glue", "stsb", pair, np.float32, train=[0.0, 2.5, 5.0], test=[-1.0, -1.0])
    scores = {"train": [-1.0, 0.5, 1.0], "test": [-1.0, 0.25]}
    write("feelings", None, pair, np.float32, "1.0.0", **scores)
    write("glue", "rte", pair, np.float32, "1.0.0", train=[1.0])
    write("glue", "sst2", one, CLASSES(names=["positive", "negative"]), train=[0])
    write("signs", None, one, CLASSES(names=["-1", "1"]), "1.0.0", train=[0, 1, -1, 0])
    write("other", "sst2", one, CLASSES(names=["good", "bad"]), train=[0])


def write_conll(path, version="1.0.0"):
    tags, parts = (SEQUENCE(CLASSES(names=names)) for names in (TAGS, ["NNP", "VBZ"]))
    features = {"tokens": SEQUENCE(TEXT()), "ner": tags, "pos": parts, "chunks": parts}

    def row(words, *found):
        others = [0] * len(words)
        return {"tokens": words, "ner": list(found), "pos": others, "chunks": others}

    splits = {
        "train": [row(["Ann", "Lee", "runs"], 1, 2, 0), row(["Rome"], 5), row([])],
        "validation": [row(["Ann"], 1)],
        "test": [row(["Rome"], 5)],
    }
    prepare(path, "conll2003", None, version, features, splits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    write_glue(path)
    write_conll(path)
    return str(path)


def settings(folder, name, **changes):
    places = {"data_dir": name, "tfds_data_dir": str(folder), "init_checkpoint": "c"}
    return FinetuneSettings(output_dir="o", **places, **changes)


def test_both_dev_and_both_test_parts_of_mnli(folder):
    task, examples = opening.open_task(settings(folder, "tfds:glue/mnli", task="mnli"))
    parts = [f"{kind}_{part}" for kind in ("dev", "test") for part in PARTS]
    assert list(examples) == ["train", *parts]
    assert task.labels == ("contradiction", "entailment", "neutral")
    # TFDS: entailment, neutral, contradiction.
    numbers = [task.labels.index(label) for label in examples["train"].labels]
    assert numbers == [1, 2, 0] * 2
    assert examples["train"].texts == [f"p{i}" for i in range(6)]
    assert examples["train"].skipped == {"rows without a label": 1}
    assert examples["dev_matched"].labels == ["contradiction", "entailment"]
    assert examples["dev_mismatched"].labels == ["neutral"]
    for name, ids in {"test_matched": ["0", "1"], "test_mismatched": ["0"]}.items():
        assert examples[name].labels is None and examples[name].ids == ids
        assert examples[name].texts == [f"p{i}" for i in ids]


def test_names_of_glue_become_those_of_its_files(folder):
    _, examples = opening.open_task(settings(folder, "tfds:glue/sst2", task="sst2"))
    assert examples["train"].labels == ["1"]
    with pytest.raises(DataError, match="expected the classes 0, 1, .*, received good"):
        opening.open_task(settings(folder, "tfds:other/sst2", task="sst2"))
    with pytest.raises(DataError, match="no feature 'text'; expected one of"):
        opening.open_task(settings(folder, "tfds:other/sst2"))


def test_the_diagnostics_are_read_to_be_predicted(folder):
    chosen = settings(folder, "tfds:glue/ax")
    found = opening.read_split(find_task("ax"), chosen, "test")
    assert found.ids == ["0", "1"] and found.labels is None
    assert found.text_pairs == ["h0", "h1"]
    with pytest.raises(UsageError, match="split: tfds:glue/ax has no split 'dev'"):
        opening.read_split(find_task("ax"), chosen, "dev")


def test_scores_that_stand_for_none(folder):
    """All rows of a split of STS-B have -1; elsewhere, -1 is a score."""
    _, examples = opening.open_task(settings(folder, "tfds:glue/stsb", task="stsb"))
    assert [float(x) for x in examples["train"].labels] == [0.0, 2.5, 5.0]
    assert examples["test"].labels is None and examples["test"].ids == ["0", "1"]
    assert "dev" not in examples
    columns = {"text_column": "sentence1", "text_pair_column": "sentence2"}
    task, examples = opening.open_task(settings(folder, "tfds:feelings", **columns))
    assert task.problem_type == "regression"
    assert [float(x) for x in examples["train"].labels] == [-1.0, 0.5, 1.0]
    assert [float(x) for x in examples["test"].labels] == [-1.0, 0.25]
    assert not examples["train"].skipped


def test_a_class_may_have_the_name_that_is_the_number_of_none(folder):
    chosen = settings(folder, "tfds:signs", text_column="sentence")
    _, examples = opening.open_task(chosen)
    assert list(examples["train"].labels) == ["-1", "1", "-1"]


def test_a_table_of_classes(folder):
    columns = {"text_column": "premise", "text_pair_column": "hypothesis"}
    name = "tfds:glue/mnli"
    with pytest.raises(UsageError, match="dev_matched, dev_mismatched, received dev"):
        opening.read_split(find_task("mnli"), settings(folder, name), "dev")
    found = opening.read_split(find_task("mnli"), settings(folder, name), "dev_matched")
    assert found.labels == ["contradiction", "entailment"]
    task, examples = opening.open_task(settings(folder, name, **columns))
    assert task.name == "table" and list(examples) == ["train"]
    assert task.labels == ("contradiction", "entailment", "neutral")
    assert examples["train"].labels[:2] == ["neutral", "entailment"]


def test_conll2003(folder):
    chosen = settings(folder, "tfds:conll2003", task="conll2003")
    task, examples = opening.open_task(chosen)
    assert examples["train"].labels == [["B-PER", "I-PER", "O"], ["B-LOC"]]
    assert examples["dev"].tokens == [["Ann"]]
    assert examples["test"].labels == [["B-LOC"]]
    assert set(TAGS) == set(task.labels)


def test_what_is_not_there_is_one_line(folder, tmp_path):
    write_conll(tmp_path, "2.0.0")
    cases = {
        ("tfds:conll2003", "conll2003", str(tmp_path)): "expected version 1.0.0, but",
        ("tfds:glue/rte", "rte", folder): "expected version 2.0.0, but .* has 1.0.0",
        ("tfds:glue/ax", "mnli", folder): "task mnli needs tfds:glue/mnli, received",
        ("tfds:race/middle", "race", folder): "not prepared in .*race/middle/2.0.0",
        ("tfds:squad/v2.0", "squad2", folder): "not prepared in .*squad/v2.0/3.0.0",
        ("tfds:glue/mnli_matched", "mnli", folder): "not prepared in",
        ("tfds:race/high", "swag", folder): "this task is not read from TensorFlow",
    }
    for (name, task, where), message in cases.items():
        with pytest.raises((DataError, UsageError), match=message) as caught:
            opening.open_task(settings(where, name, task=task))
        assert "\n" not in str(caught.value) and name in str(caught.value), name
    for split in ("dev", "test_of_ours"):
        with pytest.raises((DataError, UsageError), match="no split") as caught:
            chosen = settings(folder, "tfds:glue/stsb")
            opening.read_split(find_task("stsb"), chosen, split)
        assert "\n" not in str(caught.value) and "glue/stsb" in str(caught.value)
