"""Defaults and recipes."""

import dataclasses

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
