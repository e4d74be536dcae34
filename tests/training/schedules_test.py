"""Settings of schedules are refused before anything heavy is imported."""

import subprocess
import sys

import pytest

from albert_tf.errors import UsageError
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.imports import ROOT


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
    with pytest.raises(UsageError, match="^--num_decay_steps must be from 1 to 9, "):
        settings.resolved(20)


def test_a_run_without_the_settings_has_the_original_schedule():
    assert PretrainSettings.defaults()["learning_rate_schedule"] == "original"
    assert FinetuneSettings.defaults()["learning_rate_schedule"] == "original"
    assert pretraining().identity()["num_decay_steps"] is None


# Batch size and exponent x of the rate 5 / (2 ** x * 1000), in LAMB's paper for BERT.
LAMB_ROWS = [(512, 3), (1024, 2.5), (2048, 2), (4096, 1.5), (8192, 1), (32768, 0)]


@pytest.mark.parametrize("batch, exponent", LAMB_ROWS)
@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
def test_scaled_rates_are_those_of_lambs_paper(batch, exponent, optimizer):
    settings = pretraining(
        train_batch_size=batch, scale_learning_rate=True, optimizer=optimizer
    )
    expected = 5 / (2**exponent * 1000)
    assert settings.peak_learning_rate == pytest.approx(expected, rel=0.005)
    # The paper warms up over 3,125 steps in every row.
    assert settings.num_warmup_steps == pretraining().num_warmup_steps


def test_rate_is_as_given_unless_scaling_is_asked_for():
    settings = pretraining(train_batch_size=64, learning_rate=0.004)
    assert settings.peak_learning_rate == 0.004
    assert settings.describe_learning_rate() == "learning rate 0.004"
    scaled = pretraining(
        train_batch_size=64, learning_rate=0.004, scale_learning_rate=True
    )
    assert scaled.peak_learning_rate == pytest.approx(0.0005)
    line = "learning rate 0.0005 (0.004 x sqrt(64 / 4096))"
    assert scaled.describe_learning_rate() == line
    assert settings.identity() != scaled.identity()


def test_settings_are_checked_without_keras():
    code = """
import sys
from albert_tf.training import finetune_settings
from albert_tf.training import pretrain_settings
assert "keras" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
