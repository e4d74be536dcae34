"""The training of a pretraining run, from its last checkpoint to its end."""

import functools

import tensorflow as tf

from albert_tf.data.batches.pretraining import data_errors
from albert_tf.errors import DataError
from albert_tf.reports.metrics_file import METRICS_FILE, lines_until, read_metrics
from albert_tf.training import loop
from albert_tf.training.callbacks import (
    BEST_FOLDER,
    DivergedError,
    DivergenceGuard,
    KeepBest,
    Samples,
)
from albert_tf.training.loop import StopSignals
from albert_tf.training.pretrain_batches import RunBatches, SkippedBatches, describe
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import EVALUATED, RunFolder
from albert_tf.training.tensorflow.checkpoints import (
    TrainingCheckpoints,
    WeightAverages,
)
from albert_tf.training.tensorflow.step import TrainStep, distribute
from albert_tf.training.tensorflow.strategy import check_agreement, helper_name

CHECKPOINT_FOLDER = "checkpoints"


def train(
    settings: PretrainSettings,
    folder: RunFolder,
    data: RunBatches,
    step: TrainStep,
    strategy: tf.distribute.Strategy,
) -> None:
    """Trains from the last checkpoint, if there is one, to the end."""
    helper = helper_name(strategy)
    asynchronous = settings.async_checkpoint
    if asynchronous is None:
        asynchronous = settings.distribution in ("one_device", "mirrored")
    checkpoints = TrainingCheckpoints(
        folder.join(CHECKPOINT_FOLDER),
        step.model,
        step.optimizer,
        seed=settings.seed,
        keep=settings.keep_checkpoint_max,
        asynchronous=asynchronous,
        helper=helper,
    )
    skipped = SkippedBatches(folder, writes=not helper)
    facts = {"batches left out": skipped.entries, **checkpoints.facts()}
    check_agreement(strategy, facts)
    try:
        with StopSignals() as signals:
            _train_to_end(settings, folder, data, step, checkpoints, skipped, signals)
    finally:
        # Nothing may be written after the lock of the folder is released.
        checkpoints.settle()


def _train_to_end(settings, folder, data, step, checkpoints, skipped, signals) -> None:
    """Trains, going back to a checkpoint after each divergence if that is asked for."""
    error = note = None
    while True:
        first = checkpoints.restore(folder.join(CHECKPOINT_FOLDER))
        if error:
            phase = data.phase_of(error.step - 1)
            note = skipped.add(error, checkpoints.step, phase.first_step)
        elif first is None and settings.on_divergence == "rollback":
            checkpoints.save(wait=True)  # what the run can go back to at first
        check_agreement(step.strategy, checkpoints.facts())
        try:
            _train_on(
                *(settings, folder, data, step, checkpoints, skipped, note), signals
            )
            return
        except DivergedError as e:
            if settings.on_divergence == "stop":
                phase = data.phase_of(e.step - 1).first_step
                raise DataError(
                    f"{e}; --on_divergence=rollback leaves {skipped.name(e, phase)} out"
                ) from e
            error = e
            checkpoints.settle()


def _train_on(
    settings, folder, data, step, checkpoints, skipped, note, signals
) -> None:
    """Trains from the restored step; `note` is what made the run go back to it."""
    strategy, first = step.strategy, checkpoints.step
    averages = WeightAverages(step.model, step.optimizer)
    # Every worker reads them, because all of them take part in an evaluation.
    metrics = read_metrics(folder.join(METRICS_FILE))
    lines = lines_until(metrics, first)
    evaluated = [line["step"] for line in lines if line["split"] == "eval"]
    check_agreement(strategy, {EVALUATED: evaluated})
    bar = Progress(
        folder,
        first,
        settings.num_train_steps,
        chief=not helper_name(strategy),
        title="pretrain",
        shown=step.objective.shown,
    )
    samples = Samples(folder, first, settings, step, averages, data.tokenizer)
    with bar as progress, samples, data_errors():
        if note:
            progress.log(f"warning: {describe(note)}")
            progress.note("skipped", first, note)
        else:
            progress.log(data.summary)
            if settings.scale_learning_rate:
                progress.log(settings.describe_learning_rate())
        if first:
            progress.log(f"continuing from step {first}")
        evaluate = data.make_evaluate(step, strategy, averages)
        callbacks = [samples]
        if settings.keep_best and not helper_name(strategy):
            callbacks.append(_keep_best(settings, folder, data, step, averages))
        for phase in data.phases:
            start = max(checkpoints.step, phase.first_step)
            if start > phase.last_step:
                continue
            loop.train(
                step,
                distribute(
                    strategy, functools.partial(data.train, start, skipped=skipped)
                ),
                phase.intervals(),
                checkpoints,
                progress,
                evaluate,
                [*callbacks, _guard(settings, lines, phase)],
                lines,
                signals,
                end=settings.num_train_steps,
            )
            lines.append({"split": "eval", "step": phase.last_step})
    if settings.export_weights == "average":
        averages.replace_weights()


def _guard(settings, lines, phase) -> DivergenceGuard:
    return DivergenceGuard(
        # Longer sequences have another usual loss.
        [line for line in lines if line["step"] > phase.first_step],
        max_loss_ratio=settings.max_loss_ratio,
        max_norm_ratio=settings.max_grad_norm_ratio,
    )


def _keep_best(settings, folder, data, step, averages) -> KeepBest:
    return KeepBest(
        folder.join(BEST_FOLDER),
        settings.keep_best,
        step,
        averages,
        data.tokenizer,
        data.evaluated_on(),
    )
