"""The training of a pretraining run, from its last checkpoint to its end."""

import functools
import json

import tensorflow as tf

from albert_tf.data.batches.pretraining import data_errors
from albert_tf.reports.metrics_file import METRICS_FILE, read_metrics
from albert_tf.training import loop
from albert_tf.training.divergence import DivergedError, DivergenceGuard
from albert_tf.training.pretraining.keep_best import BEST_FOLDER, KeepBest
from albert_tf.training.pretraining.rollback import SkippedBatches, describe
from albert_tf.training.pretraining.run_batches import RunBatches
from albert_tf.training.pretraining.settings import CONTENT_OF, PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import RunFolder
from albert_tf.training.tensorflow.agreement import check_agreement
from albert_tf.training.tensorflow.averages import WeightAverages
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import TrainStep, distribute
from albert_tf.training.tensorflow.strategy import helper_name, worker_errors

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
    # The paths of the same content may differ from machine to machine.
    kept = {k: v for k, v in folder.identity.items() if k not in CONTENT_OF}
    run = json.dumps([kept, folder.content], sort_keys=True)
    check_agreement(strategy, {"settings or data": run, **checkpoints.facts()})
    skipped = SkippedBatches(folder, writes=not helper)
    error = note = None
    with worker_errors(strategy):
        while True:
            first = checkpoints.restore(folder.join(CHECKPOINT_FOLDER))
            if error:
                phase = data.phase_of(error.step - 1)
                note = skipped.add(error, checkpoints.step, phase.first_step)
            elif first is None and settings.on_divergence == "rollback":
                checkpoints.save(wait=True)  # what the run can go back to at first
            check_agreement(strategy, checkpoints.facts())
            try:
                _train_on(settings, folder, data, step, checkpoints, skipped, note)
                return
            except DivergedError as e:
                if settings.on_divergence == "stop":
                    raise
                error = e
                checkpoints.settle()


def _train_on(settings, folder, data, step, checkpoints, skipped, note) -> None:
    """Trains from the restored step; `note` is what made the run go back to it."""
    strategy, first = step.strategy, checkpoints.step
    averages = WeightAverages(step.model, step.optimizer)
    # Every worker reads them, because all of them take part in an evaluation.
    metrics = read_metrics(folder.join(METRICS_FILE))
    lines = [line for line in metrics if line["step"] <= first]
    evaluated = [line["step"] for line in lines if line["split"] == "eval"]
    bar = Progress(
        folder,
        first,
        settings.num_train_steps,
        chief=not helper_name(strategy),
        title="pretrain",
        shown=step.objective.shown,
    )
    with bar as progress, data_errors():
        if note:
            progress.log(f"warning: {describe(note)}")
            progress.note("skipped", first, note)
        else:
            progress.log(data.summary)
            if settings.scale_learning_rate:
                progress.log(settings.describe_learning_rate())
        if first:
            progress.log(f"continuing from step {first}")
        guard = DivergenceGuard(
            lines,
            max_loss_ratio=settings.max_loss_ratio,
            max_norm_ratio=settings.max_grad_norm_ratio,
        )
        evaluate = _make_evaluate(settings, folder, data, step, strategy, averages)
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
                evaluated,
                guard=guard,
            )
            evaluated.append(phase.last_step)
    if settings.export_weights == "average":
        averages.replace_weights()


def _make_evaluate(settings, folder, data, step, strategy, averages):
    """Returns what an evaluation does, or None without held-out data."""
    evaluate = data.make_evaluate(step, strategy, averages)
    if not settings.keep_best or helper_name(strategy):
        return evaluate
    best = KeepBest(
        folder.join(BEST_FOLDER),
        settings.keep_best,
        step.model,
        averages,
        data.tokenizer,
    )
    return best.around(evaluate, lambda: int(step.optimizer.iterations.numpy()))
