"""Defaults, recipes and limits."""

import dataclasses

import pytest

from albert_tf.errors import UsageError
from albert_tf.tasks.registry import find_recipe
from albert_tf.tasks.text_tables import LabelledTableSettings
from albert_tf.training.finetune_settings import (
    FinetuneSettings,
    beside,
)


def settings(**changes):
    return FinetuneSettings(train_file="t", output_dir="o", **changes)


def test_a_recipe_fills_what_is_not_given():
    recipe = dataclasses.asdict(find_recipe("rte"))
    found = settings(learning_rate=1e-4).resolved(2490, recipe)
    assert found.learning_rate == 1e-4
    assert (found.train_batch_size, found.dropout) == (32, 0.1)
    assert (found.num_train_steps, found.num_warmup_steps) == (800, 200)


@pytest.mark.parametrize(
    "given, fixed",
    [
        ({}, False),
        ({"fixed_length": True}, True),
        ({"jit_compile": True}, True),
        ({"distribution": "tpu"}, True),
        ({"distribution": "mirrored"}, False),
    ],
)
def test_what_xla_compiles_has_one_length(given, fixed):
    assert settings(**given).resolved(100, {}).fixed_length is fixed


def test_epochs_replace_the_steps_of_a_recipe():
    recipe = dataclasses.asdict(find_recipe("rte"))
    found = settings(num_train_epochs=2.0).resolved(100, recipe)
    assert (found.num_train_steps, found.num_warmup_steps) == (7, 0)
    assert found.train_batch_size == 32


def test_what_is_given_beside_a_config_replaces_its_steps():
    config = {"num_train_steps": 800, "num_warmup_steps": 200, "learning_rate": 1e-5}
    assert beside(config, []) == config
    for name in ("num_train_epochs", "max_train_examples"):
        assert beside(config, [name]) == {"learning_rate": 1e-5}
    assert "num_warmup_steps" not in beside(config, ["warmup_proportion"])
    assert beside({"num_train_epochs": 3.0}, ["num_train_steps"]) == {}
    with pytest.raises(UsageError, match="num_train_steps, received 2.0 and 9"):
        settings(num_train_epochs=2.0, num_train_steps=9).resolved(100)


def test_the_warm_up_as_a_share_of_the_steps():
    recipe = dataclasses.asdict(find_recipe("rte"))
    found = settings(warmup_proportion=0.3).resolved(100, recipe)
    assert (found.num_train_steps, found.num_warmup_steps) == (800, 240)
    # The original rounds down.
    found = settings(warmup_proportion=0.1, num_train_steps=29).resolved(100)
    assert found.num_warmup_steps == 2
    with pytest.raises(UsageError, match="num_warmup_steps, received 0.1 and 3"):
        settings(warmup_proportion=0.1, num_warmup_steps=3).resolved(100)


def test_defaults():
    found = settings().resolved(1000)
    assert (found.num_train_steps, found.num_warmup_steps) == (94, 9)
    assert found.eval_steps == 32  # an epoch
    assert found.log_steps == 4
    assert found.dropout is None
    assert all(field.metadata["help"] for field in dataclasses.fields(found))


def test_every_setting_of_a_table_is_there():
    names = {field.name for field in dataclasses.fields(FinetuneSettings)}
    assert {field.name for field in dataclasses.fields(LabelledTableSettings)} < names


def test_what_does_not_change_the_result_is_no_identity():
    one = settings(save_checkpoints_steps=3, log_steps=1).identity()
    assert one == FinetuneSettings(train_file="t", output_dir="x").identity()
    assert one != settings(seed=1).identity()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_dir": "d"}, "exactly one of --data_dir"),
        ({"train_file": ""}, "exactly one of --data_dir"),
        (
            {"train_file": "", "data_dir": "d", "dev_file": "e"},
            "only with --train_file",
        ),
        ({"gradient_accumulation_steps": 0}, "must be positive, received 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\)"),
        ({"warmup_proportion": 1.5}, r"warmup_proportion must be in \[0, 1\]"),
        ({"early_stopping_patience": -1}, "must not be negative, received -1"),
        ({"train_batch_size": 9, "gradient_accumulation_steps": 2}, "multiple of"),
        ({"num_seeds": 0}, "num_seeds must be positive"),
        ({"max_seq_length": 2}, "max_seq_length must be at least 3"),
        ({"clip_norm": -1.0}, "clip_norm must not be negative"),
        ({"layerwise_decay": 2.0}, "layerwise_decay must be in"),
    ],
)
def test_refusals(changes, message):
    values = {"train_file": "t", "output_dir": "o", "init_checkpoint": "c", **changes}
    with pytest.raises(UsageError, match=message):
        given = FinetuneSettings(**values)
        given.check_source()
        given.check_values()
