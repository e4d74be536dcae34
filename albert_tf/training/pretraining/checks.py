"""Checks the settings of a pretraining run, before anything is read."""

import math
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.reports.prompts import MASK
from albert_tf.training.number_ranges import check_numbers
from albert_tf.training.pretraining.lengths import phases_of
from albert_tf.training.schedules import check_schedule

_MAY_BE_ZERO = (
    "num_warmup_steps",
    "start_warmup_step",
    "eval_steps",
    "max_eval_steps",
    "worker_timeout",
)


def check_settings(settings: Any) -> None:
    """Refuses settings that no run can have.

    Args:
        settings: `PretrainSettings`.

    Raises:
        UsageError: If a setting is missing, out of its range, or does not fit another.
    """
    for name in ("input_file", "output_dir", "spm_model_file"):
        if not getattr(settings, name):
            raise UsageError(f"--{name} is required")
    has_start = bool(settings.init_checkpoint) and not settings.grow
    given = bool(settings.preset) + bool(settings.albert_config_file)
    if given > 1 or not (given or has_start):
        raise UsageError(
            "exactly one of --preset and --albert_config_file must be given, or "
            "--init_checkpoint without --grow, whose config is then taken; "
            f"received {settings.preset!r} and {settings.albert_config_file!r}"
        )
    if settings.grow and not settings.init_checkpoint:
        raise UsageError("--grow requires --init_checkpoint, received none")
    if settings.keep_best and not settings.eval_file:
        raise UsageError(
            f"--keep_best requires --eval_file, received {settings.keep_best!r} alone"
        )
    for text in filter(None, settings.sample_texts):
        if MASK not in text:
            raise UsageError(f"--sample_texts must contain {MASK}, received {text!r}")
    check_numbers(settings, _MAY_BE_ZERO)
    _check_averages(settings)
    if settings.num_warmup_steps > settings.num_train_steps:
        raise UsageError(
            f"--num_warmup_steps must be at most --num_train_steps="
            f"{settings.num_train_steps}, received {settings.num_warmup_steps}"
        )
    check_schedule(settings)
    if not 0 <= settings.seed < 2**31:
        raise UsageError(f"--seed must be in [0, 2**31), received {settings.seed}")
    _check_divergence(settings)
    if settings.precision not in ("float32", "bfloat16"):
        raise UsageError(
            f"--precision must be float32 or bfloat16, received {settings.precision!r}"
        )
    if settings.train_batch_size % settings.gradient_accumulation_steps:
        raise UsageError(
            "--train_batch_size must be a multiple of "
            "--gradient_accumulation_steps, received "
            f"{settings.train_batch_size} and {settings.gradient_accumulation_steps}"
        )
    if settings.sequence_length_schedule:
        phases_of(settings)  # checks them, and the settings of each phase


def _check_divergence(settings: Any) -> None:
    if settings.on_divergence not in ("stop", "rollback"):
        raise UsageError(
            f"--on_divergence must be stop or rollback, received "
            f"{settings.on_divergence!r}"
        )
    for name in ("max_loss_ratio", "max_grad_norm_ratio"):
        value = getattr(settings, name)
        if value != 0 and not 1 < value < math.inf:
            raise UsageError(
                f"--{name} must be above 1, or 0 for none, received {value}"
            )


def _check_averages(settings: Any) -> None:
    if settings.export_weights not in ("last", "average"):
        raise UsageError(
            f"--export_weights must be last or average, received "
            f"{settings.export_weights!r}"
        )
    if settings.export_weights == "average" and not settings.ema_decay:
        raise UsageError("--export_weights=average requires an --ema_decay, received 0")
