"""Defaults and recipes."""

import dataclasses

from albert_tf.tasks.texts.tables import LabelledTableSettings, TableSettings
from albert_tf.training.finetuning.settings import FinetuneSettings


def test_recipes_and_defaults():
    settings = FinetuneSettings("t", "o", recipe="rte", learning_rate=1e-4)
    settings = settings.resolved(2490)
    assert settings.learning_rate == 1e-4
    assert (settings.train_batch_size, settings.dropout) == (32, 0.1)
    assert (settings.num_train_steps, settings.num_warmup_steps) == (800, 200)
    settings = FinetuneSettings("t", "o", num_train_epochs=2.0).resolved(100)
    assert settings.num_train_steps == 7
    assert settings.num_warmup_steps == 0
    assert settings.dropout is None
    assert all(field.metadata["help"] for field in dataclasses.fields(settings))


def test_files_come_first_in_help():
    names = [field.name for field in dataclasses.fields(FinetuneSettings)]
    assert names[:3] == ["train_file", "output_dir", "dev_file"]
    assert {field.name for field in dataclasses.fields(LabelledTableSettings)} < set(
        names
    )


def test_the_task_has_the_given_files_as_splits():
    settings = FinetuneSettings(
        "t.tsv", "o", test_file="x.tsv", text_column="2", labels=("b", "a")
    )
    task = settings.make_task()
    assert {name: source.file for name, source in task.splits.items()} == {
        "train": "t.tsv",
        "test": "x.tsv",
    }
    assert task.splits["train"].columns == LabelledTableSettings(text_column="2")
    # A table to predict needs no labels.
    assert task.splits["test"].columns == TableSettings(text_column="2")
    assert task.labels == ("b", "a")
