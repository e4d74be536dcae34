"""Settings of schedules are refused before anything heavy is imported."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.training.finetuning.settings import FinetuneSettings
from albert_tf.training.pretraining.settings import PretrainSettings


def pretraining(**changes):
    paths = dict(input_file="a", output_dir="b", spm_model_file="c", preset="d")
    lengths = dict(num_train_steps=20, num_warmup_steps=4)
    return PretrainSettings(**paths, **{**lengths, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"learning_rate_schedule": "step"}, "schedule must be one of.*'step'"),
        ({"num_decay_steps": 3}, "num_decay_steps requires .*received 3 with original"),
        (
            {"learning_rate_schedule": "linear", "poly_power": 2.0},
            "--poly_power has no meaning with --learning_rate_schedule=linear, rec.*2",
        ),
        (
            {"learning_rate_schedule": "cosine", "start_warmup_step": 1},
            "--start_warmup_step has no meaning",
        ),
        (
            {"learning_rate_schedule": "trapezoid", "num_decay_steps": 17},
            "--num_decay_steps must be from 1 to 16, .*received 17",
        ),
        (
            {"learning_rate_schedule": "trapezoid", "num_decay_steps": 0},
            "--num_decay_steps must be from 1 to 16, .*received 0",
        ),
    ],
)
def test_pretraining_refuses(changes, message):
    with pytest.raises(UsageError, match=message):
        pretraining(**changes)


def test_finetuning_checks_the_decay_against_its_own_steps():
    settings = FinetuneSettings(
        task="cola",
        output_dir="b",
        learning_rate_schedule="trapezoid",
        num_decay_steps=20,
        train_batch_size=4,
        num_train_epochs=2.0,
    )
    assert settings.resolved(44).num_decay_steps == 20  # 22 steps, 2 of them warm-up
    with pytest.raises(UsageError, match="^num_decay_steps must be from 1 to 9, "):
        settings.resolved(20)


def test_a_run_without_the_settings_has_the_original_schedule():
    assert PretrainSettings.defaults()["learning_rate_schedule"] == "original"
    assert FinetuneSettings.defaults()["learning_rate_schedule"] == "original"
    assert pretraining().identity()["num_decay_steps"] is None
