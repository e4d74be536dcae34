"""A pretraining run, from its settings to a folder with a model."""

import contextlib
import functools

import tensorflow as tf

from albert_tf.converters.load import open_checkpoint
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.data.batches.reader import data_errors
from albert_tf.errors import DataError, require
from albert_tf.heads import MODEL
from albert_tf.objectives.any_depth import both_passes, with_short_pass
from albert_tf.objectives.pretraining import OBJECTIVES, Objective
from albert_tf.objectives.terms import SpanTargets
from albert_tf.storage import files
from albert_tf.text.load import warn_if_small
from albert_tf.training import pretrain_inputs, pretrain_outputs
from albert_tf.training.callbacks import Callback, DivergedError, KeepModel, Samples
from albert_tf.training.checkpoints import TrainingCheckpoints, latest_step
from albert_tf.training.context import Draw, no_pictures
from albert_tf.training.engine import Strategy, make_deterministic, num_shares
from albert_tf.training.pretrain_batches import RunBatches, SkippedBatches
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.pretrain_teacher import (
    check_teacher,
    make_distillation,
    open_teacher,
)
from albert_tf.training.progress import Progress
from albert_tf.training.run import Observers, Run, build_step, devices, is_done
from albert_tf.training.run_folder import CHECKPOINT_FOLDER, RunFolder
from albert_tf.training.start import check_layers, content_of, make_pretrainer
from albert_tf.training.weights import WeightAverages


def pretrain(settings: PretrainSettings, draw: Draw = no_pictures) -> str:
    """Pretrains a model, or continues where the same command was stopped.

    With `settings.deterministic`, the default without a GPU, TensorFlow's operations
    remain deterministic in the whole process: TensorFlow cannot undo it. `draw` is
    `reports.run_page.draw_run`. Returns the folder of the trained model,
    `<output_dir>/model`.
    """
    objective = find_objective(settings)
    with devices(settings) as strategy:
        if run := _opened(settings, objective, strategy, draw):
            run.execute()
    return files.join(settings.output_dir, MODEL)


def find_objective(settings: PretrainSettings) -> Objective:
    """Returns the objective of the settings, which must have the metric to keep."""
    objective = OBJECTIVES[settings.objective]
    if settings.teacher:
        share = settings.teacher_weight, settings.teacher_temperature
        objective = objective.with_teacher(*share, bool(settings.teacher_layers))
    metrics = list(objective.metric_names)
    if settings.ema_decay:
        metrics += [f"ema_{metric}" for metric in metrics]
    best = settings.keep_best
    fits = not best or best in metrics
    require(fits, f"--keep_best must be one of {', '.join(metrics)}", best)
    targets = SpanTargets(settings.max_span, settings.span_edges)
    objective = objective.with_span_targets(targets)
    objective = objective.with_pair_weight(settings.pair_loss_weight)
    return with_short_pass(objective, settings.depth_consistency)


def _opened(
    settings: PretrainSettings, objective: Objective, strategy: Strategy, draw: Draw
) -> "Pretraining | None":
    """Checks the inputs and builds the step; returns None if the run is finished."""
    folder, path = RunFolder(settings), settings.init_checkpoint
    # The initial checkpoint is opened only once.
    with (
        open_checkpoint(path) if path else contextlib.nullcontext() as start,
        open_teacher(settings.teacher) as teacher,
    ):
        tokenizer = pretrain_inputs.load_run_tokenizer(settings, start)
        pretrain_inputs.check_ngram(settings, folder.was_begun)
        config = pretrain_inputs.load_config(settings, start, tokenizer)
        check_layers(settings, config)
        pretrain_inputs.check_sizes(settings, config, tokenizer)
        pretrain_inputs.check_segments(settings, config)
        segments, head = config.type_vocab_size, objective.head
        if teacher is not None:
            check_teacher(settings, teacher, config, tokenizer)
            segments = min(segments, teacher.config.type_vocab_size)
        replicas, sharing = strategy.num_replicas_in_sync, num_shares(strategy)
        pretrain_inputs.check_batches(settings, config, replicas, sharing)
        if start is None:
            warn_if_small(tokenizer, config.vocab_size)
        else:
            choose_tokenizer(start, tokenizer)  # raises for other weights
            folder.origin = start.origin
        data = RunBatches(settings, objective, tokenizer, replicas, segments)
        digests = pretrain_inputs.digests_of(data.records)
        folder.check_content(
            content_of(digests, tokenizer, config, start, settings.teacher)
        )
        held_out = data.evaluated_on() if settings.eval_file else None
        finished = pretrain_outputs.is_finished(folder, head)
        if is_done(strategy, folder, finished, {"held-out data": held_out}):
            return None
        folder.check_versions()
        make_deterministic(settings.deterministic)
        reached = latest_step(folder.join(CHECKPOINT_FOLDER)) or 0
        need = (
            f"--num_train_steps must be at least {reached}, the step that the run in "
            f"--output_dir={settings.output_dir} has reached"
        )
        require(reached <= settings.num_train_steps, need, settings.num_train_steps)
        make_model = functools.partial(make_pretrainer, settings, start, config, head)

        def learns(model):
            if teacher is not None:
                return objective, make_distillation(settings, teacher, model)
            passes = functools.partial(both_passes, model)
            return objective, passes if settings.depth_consistency else None

        step = build_step(settings, strategy, make_model, learns)
    averages = WeightAverages(step.model, step.optimizer)
    return Pretraining(settings, folder, tokenizer, data, step, averages, draw)


class Pretraining(Run):
    """One pretraining run."""

    title = "pretrain"

    @functools.cached_property
    def skipped(self) -> SkippedBatches:
        """The batches to leave out; read only when the run holds its folder."""
        return SkippedBatches(self.folder.path, self.data.phases, not self.helper)

    def train(self) -> None:
        """Trains; a run that is stopped leaves a page about its progress."""
        writes = not self.helper
        path = self.folder.join(self.tokenizer.file_name)
        if writes and not files.exists(path):
            files.write_bytes(path, self.tokenizer.model)  # checkpoints need it
        stopped = pretrain_outputs.page_of_a_stopped_run(self)
        with stopped if writes else contextlib.nullcontext(), data_errors():
            super().train(**{"batches left out": self.skipped.entries})

    def batches(self, start: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns the batches of an input pipeline, without the skipped ones."""
        return self.data.train(start, self.skipped, pipelines, pipeline)

    def began(
        self,
        progress: Progress,
        checkpoints: TrainingCheckpoints,
        error: DivergedError | None,
    ) -> None:
        """Logs what is trained on, or leaves out the batch of a divergence."""
        if error:
            left_out = self.skipped.name(error)
            entry = self.skipped.add(error, checkpoints.step)
            progress.log(
                f"warning: diverged at step {error.step:,}: {left_out} is left out, "
                f"and training goes on from step {checkpoints.step:,}"
            )
            progress.note("skipped", checkpoints.step, entry)
            return
        is_new = checkpoints.intact_step is None
        if is_new and self.settings.on_divergence == "rollback":
            checkpoints.save(wait=True)  # the first state that the run can go back to
        progress.log(self.data.summary)
        if self.settings.scale_learning_rate:
            progress.log(self.settings.describe_learning_rate())

    def observers(self, lines: list[dict], progress: Progress) -> Observers:
        """Evaluates, writes samples and keeps the best model."""
        callbacks: list[Callback] = [Samples(self, progress.first_step)]
        if self.settings.keep_best and not self.helper:
            callbacks.append(KeepModel(self))
        return self.data.make_evaluate(self.step, self.averages), callbacks

    def diverged(self, error: DivergedError) -> None:
        """Ends the run, or lets it go back to the last checkpoint."""
        if self.settings.on_divergence == "stop":
            left_out = self.skipped.name(error)
            raise DataError(
                f"{error}; --on_divergence=rollback leaves {left_out} out"
            ) from error

    def trained(self, last: int) -> None:
        """Loads the weights that `export_weights` names into the model."""
        if self.settings.export_weights == "average":
            self.averages.replace_weights()

    def finish(self) -> None:
        """Writes curves, page, card and model."""
        pretrain_outputs.finish(self, self.skipped.entries)
