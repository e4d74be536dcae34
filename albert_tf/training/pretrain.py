"""A pretraining run, from its settings to a folder with a model."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.converters import nets
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.load import open_checkpoint, write_files
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.data.batches.reader import data_errors
from albert_tf.errors import DataError, require
from albert_tf.heads import MODEL, find
from albert_tf.layers.depth import check_depth
from albert_tf.objectives.pretraining import OBJECTIVES, Objective
from albert_tf.objectives.terms import SpanTargets
from albert_tf.storage import files, folders
from albert_tf.text.load import warn_if_small
from albert_tf.training import loop, outputs, pretrain_inputs
from albert_tf.training.callbacks import Callback, DivergedError, KeepModel, Samples
from albert_tf.training.checkpoints import TrainingCheckpoints, latest_step
from albert_tf.training.engine import (
    Strategy,
    TrainStep,
    make_deterministic,
    num_shares,
)
from albert_tf.training.pretrain_batches import RunBatches, SkippedBatches
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run import Draw, Run, devices, no_pictures
from albert_tf.training.run_folder import (
    BEST_FOLDER,
    CHECKPOINT_FOLDER,
    RunFolder,
    as_begun,
)
from albert_tf.training.start import content_of, make_pretrainer
from albert_tf.training.weights import mark_trained


def pretrain(settings: PretrainSettings, draw: Draw = no_pictures) -> str:
    """Pretrains a model, or continues where the same command was stopped.

    With `settings.deterministic`, the default without a GPU, TensorFlow's operations
    remain deterministic in the whole process: TensorFlow cannot undo it.

    Args:
        draw: callable. Draws curves and page of the run: `reports.run_page.draw_run`.

    Returns:
        str. Folder of the trained model, `<output_dir>/model`.

    Raises:
        UsageError: If a setting, or the output folder, cannot be used.
        DataError: If an input file is invalid, or the training diverges.
    """
    objective = find_objective(settings)
    with devices(settings) as strategy:
        objective = as_begun(settings, objective)
        run = Pretraining(objective.complete(settings), strategy, objective)
        run.draw = draw
        run.execute()
        return run.result()


def find_objective(settings: PretrainSettings) -> Objective:
    """Returns the objective of the settings, which must have the metric to keep."""
    objective = OBJECTIVES[settings.objective]
    metrics = list(objective.metric_names)
    if settings.ema_decay:
        metrics += [f"ema_{metric}" for metric in metrics]
    best = settings.keep_best
    fits = not best or best in metrics
    require(fits, f"--keep_best must be one of {', '.join(metrics)}", best)
    targets = SpanTargets(settings.max_span, settings.span_edges)
    objective = objective.with_span_targets(targets)
    return objective.with_pair_weight(settings.pair_loss_weight)


class Pretraining(Run):
    """One pretraining run."""

    title = "pretrain"

    def __init__(
        self,
        settings: PretrainSettings,
        strategy: Strategy,
        objective: Objective,
    ):
        super().__init__(settings, strategy)
        self.objective = objective
        self.asynchronous = settings.async_checkpoint
        self._error: DivergedError | None = None

    @contextlib.contextmanager
    def open_inputs(self) -> Iterator[Mapping[str, Any]]:
        """Opens the inputs; the initial checkpoint is opened only once."""
        settings, path = self.settings, self.settings.init_checkpoint
        self.folder = RunFolder(settings)
        with open_checkpoint(path) if path else contextlib.nullcontext() as start:
            self.start = start
            self.tokenizer = pretrain_inputs.load_run_tokenizer(settings, start)
            pretrain_inputs.check_ngram(settings, self.folder.was_begun)
            self.config = pretrain_inputs.load_config(settings, start, self.tokenizer)
            check_depth(settings.depth, self.config)
            pretrain_inputs.check_sizes(settings, self.config, self.tokenizer)
            pretrain_inputs.check_segments(settings, self.config)
            replicas = self.strategy.num_replicas_in_sync
            sharing = num_shares(self.strategy)
            pretrain_inputs.check_batches(settings, self.config, replicas, sharing)
            if start is None:
                warn_if_small(self.tokenizer, self.config.vocab_size)
            else:
                choose_tokenizer(start, self.tokenizer)  # raises for other weights
                self.folder.origin = start.origin
            self.data = RunBatches(
                settings,
                self.objective,
                self.tokenizer,
                replicas,
                self.config.type_vocab_size,
            )
            digests = pretrain_inputs.digests_of(self.data.records)
            self.folder.check_content(
                content_of(digests, self.tokenizer, self.config, start)
            )
            held_out = self.data.evaluated_on() if settings.eval_file else None
            yield {"held-out data": held_out}

    def is_finished(self) -> bool:
        """Returns whether the model of the run exists and is intact.

        Raises `DataError` if it is damaged and there is no checkpoint to make it from.
        """
        models = self._models()
        if self.folder.model_is_outdated or not all(map(folders.is_complete, models)):
            return False
        try:
            for model in models:
                folders.verify(model)
        except folders.DamagedError as e:
            require(
                latest_step(self.folder.join(CHECKPOINT_FOLDER)) is not None,
                f"{e}; no checkpoint is left to make the model from; another "
                "--output_dir begins anew",
                error=DataError,
            )
            logging.warning("%s; the model is made again from the last checkpoint", e)
            self.folder.model_is_outdated = True
            return False
        return True

    def result(self) -> str:
        """Returns the folder of the model."""
        return self.folder.join(MODEL)

    def _models(self) -> list[str]:
        """Returns the folders of all nets; the net to fine-tune comes last."""
        return [
            self.folder.join(name) for name in find(self.objective.head).nets or [MODEL]
        ]

    def make_step(self) -> TrainStep:
        """Builds the model with its initial weights, and its step."""
        settings = self.settings
        self.folder.check_versions()
        make_deterministic(settings.deterministic)
        reached = latest_step(self.folder.join(CHECKPOINT_FOLDER)) or 0
        require(
            reached <= settings.num_train_steps,
            f"--num_train_steps must be at least {reached}, the step that the run in "
            f"--output_dir={settings.output_dir} has reached",
            settings.num_train_steps,
        )
        return self.build_step(
            lambda dtype: make_pretrainer(
                settings, self.start, self.config, self.objective.head, dtype
            ),
            self.objective,
            fuse=settings.fuse_elementwise,
            learning_rate=settings.peak_learning_rate,
            poly_power=settings.poly_power,
            start_warmup_step=settings.start_warmup_step,
        )

    @property
    def phases(self) -> Sequence[Any]:
        """The phases; more than one if sequences grow longer."""
        return self.data.phases

    def train(self) -> None:
        """Trains; a run that is stopped leaves a page about its progress."""
        writes = not self.helper
        self.skipped = SkippedBatches(self.folder.path, self.data.phases, writes)
        self.facts = {"batches left out": self.skipped.entries}
        path = self.folder.join(self.tokenizer.file_name)
        if writes and not files.exists(path):
            files.write_bytes(path, self.tokenizer.model)  # checkpoints need it
        stopped = outputs.page_of_a_stopped_run(self)
        with stopped if writes else contextlib.nullcontext(), data_errors():
            super().train()

    def batches(self, start: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns the batches of an input pipeline, without the skipped ones."""
        return self.data.train(start, self.skipped, pipelines, pipeline)

    def began(
        self, progress: Progress, checkpoints: TrainingCheckpoints, first: int | None
    ) -> None:
        """Logs what is trained on, or leaves out the batch of a divergence."""
        if self._error:
            left_out = self.skipped.name(self._error)
            entry = self.skipped.add(self._error, checkpoints.step)
            progress.log(
                f"warning: diverged at step {self._error.step:,}: {left_out} is left "
                f"out, and training goes on from step {checkpoints.step:,}"
            )
            progress.note("skipped", checkpoints.step, entry)
            return
        if first is None and self.settings.on_divergence == "rollback":
            checkpoints.save(wait=True)  # the first state that the run can go back to
        progress.log(self.data.summary)
        if self.settings.scale_learning_rate:
            progress.log(self.settings.describe_learning_rate())

    def evaluation(self) -> loop.Evaluate | None:
        """Returns a function that evaluates, or None without held-out data."""
        return self.data.make_evaluate(self.step, self.averages)

    def callbacks(self, lines: list[dict], progress: Progress) -> list[Callback]:
        """Returns the callbacks that write samples and keep the best model."""
        settings, folder, data = self.settings, self.folder, self.data
        first, weights = progress.first_step, (self.step, self.averages, self.tokenizer)
        callbacks: list[Callback] = [Samples(folder.path, first, settings, *weights)]
        if settings.keep_best and not self.helper:
            path = folder.join(BEST_FOLDER)
            keeper = KeepModel(path, settings.keep_best, *weights, data.evaluated_on())
            callbacks.append(keeper)
        return callbacks

    def diverged(self, error: DivergedError) -> None:
        """Ends the run, or lets it go back to the last checkpoint."""
        if self.settings.on_divergence == "stop":
            left_out = self.skipped.name(error)
            raise DataError(
                f"{error}; --on_divergence=rollback leaves {left_out} out"
            ) from error
        self._error = error

    def trained(self, last: int) -> None:
        """Loads the weights that `export_weights` names into the model."""
        if self.settings.export_weights == "average":
            self.averages.replace_weights()

    def finish(self) -> str:
        """Writes curves, page, card and model."""
        outputs.write_outputs(self)
        mark_trained(self.step.model, self.step.optimizer)
        parts = nets.split(from_model(self.step.model, self.tokenizer))
        # A run without `model` is not finished, so `model` comes last. Nets of
        # different steps must not lie next to each other; checkpoints hold all weights.
        for path in self._models()[1:]:
            files.remove_tree(path)
        for path, net in zip(self._models(), parts.values(), strict=True):
            # A folder in the way was restored, and does not belong to this run.
            with folders.writing(path, overwrite=True) as out:
                write_files(net, out)
        folders.restore(self.folder.join(BEST_FOLDER))  # its upload may have failed
        self.folder.finish()
        return self.result()
