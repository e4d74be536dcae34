"""A fine-tuning run, from its settings to a folder with a model and its results."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.errors import require
from albert_tf.heads import NONE
from albert_tf.layers.depth import check_depth
from albert_tf.objectives.finetuning import for_task, with_exits
from albert_tf.storage import files
from albert_tf.tasks import batches
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import collect_outputs
from albert_tf.training import examples, loop, outputs, start
from albert_tf.training.callbacks import Callback, KeepWeights
from albert_tf.training.engine import TrainStep, is_one_of_several
from albert_tf.training.evaluation import Collapse, Evaluator
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run import Draw, Run, devices, no_pictures
from albert_tf.training.run_folder import BEST_FOLDER, METRICS, open_run, prepared


def finetune_once(
    settings: FinetuneSettings,
    read: tuple | None = None,
    draw: Draw = no_pictures,
) -> dict:
    """Trains on a task and writes a folder with the model and its measurements.

    An unfinished run in the folder is continued; if it is finished, its results are
    returned. Arguments, result and errors are as in `seeds.finetune`, which also
    handles `num_seeds` and the restart after a collapse.
    """
    settings = prepared(settings)
    with devices(settings) as strategy:
        run = Finetuning(settings, strategy)
        run.read, run.draw = read, draw
        return run.execute() or {}


class Finetuning(Run):
    """One fine-tuning run.

    Attributes:
        read: tuple or None. Result of `examples.read_task`, if it has been called.
        shape: `BatchShape`. Shape of the training batches of one input pipeline.
        selection: `KeepWeights`. Decides which weights are kept.
    """

    title = "finetune"
    read: tuple | None = None

    @contextlib.contextmanager
    def open_inputs(self) -> Iterator[Mapping[str, Any]]:
        """Opens the inputs, and the folder."""
        with self.read_inputs() as content:
            self.folder = open_run(self.settings, content)
            self.folder.origin = self.start.origin
            yield {"other run in --output_dir": self.folder.replaces}

    @contextlib.contextmanager
    def read_inputs(self) -> Iterator[Mapping[str, Any]]:
        """Reads the examples, opens the model to start from, resolves the settings.

        Yields everything else that decides the result, ready for JSON.
        """
        settings, task, parts = self.read or examples.read_task(self.settings)
        with start.open_start(settings) as self.start:
            begin, tokenizer = self.start, self.start.tokenizer
            check_depth(settings.depth, begin.config)
            task = begin.choose_head(task)
            settings, task = examples.with_lengths(
                settings, task, begin.config, tokenizer
            )
            self.data = examples.encode(task, parts, tokenizer)
            self.data.check_metric(settings.metric, settings.needs_dev())
            recipe = examples.recipe_of(settings, task)
            self.settings = settings.resolved(len(self.data.train), recipe)
            begin.use_dropout(self.settings.dropout)
            start.learning_rate_multipliers(settings.layerwise_decay, begin.config)
            yield start.content_of(
                self.data.digest(), tokenizer, begin.config, begin.checkpoint
            )

    def result(self) -> dict[str, Any]:
        """Returns the results of the finished run."""
        return files.read_json(self.folder.join(METRICS))

    def make_step(self) -> TrainStep:
        """Builds the model with its initial weights, and its step."""
        settings, task, train = self.settings, self.data.task, self.data.train
        config = self.start.config
        rates = start.learning_rate_multipliers(
            settings.layerwise_decay, config, settings.layerwise_decay_rule
        )
        self.class_weights = start.class_weights(settings, task, train)
        objective = for_task(
            task.head,
            task.problem_type,
            class_weights=self.class_weights,
            label_smoothing=settings.label_smoothing,
        )
        step = self.build_step(
            lambda dtype: self.start.make_model(task, dtype),
            with_exits(objective, config.num_hidden_layers - 1, settings.exits),
            forward=None if settings.exits == NONE else "every_exit",
            learning_rate_multipliers=rates,
        )
        step.model.max_seq_length = task.options.max_seq_length
        longest, on_jax = task.options.max_seq_length, settings.backend == "jax"
        # JAX compiles a step for each length; all processes must use the same one.
        few = on_jax and not settings.fixed_length
        few = few and not is_one_of_several(self.strategy)
        self.shape = BatchShape(
            task.head,
            longest,
            config.max_position_embeddings,
            self.start.tokenizer.pad_id,
            parts=step.num_shares * settings.gradient_accumulation_steps,
            packing=settings.packing,
            fixed_length=settings.fixed_length or on_jax,
            lengths=batches.halved(longest) if few else (),
        )
        # Each input pipeline produces the share of one process.
        pipelines = self.strategy.num_replicas_in_sync // step.num_shares
        batches.check(train, self.shape, settings.train_batch_size, pipelines)
        require(
            not (is_one_of_several(self.strategy) and self.folder.replaces),
            f"output_dir: {self.folder.path} holds another run, which several workers "
            "cannot replace; remove it, or give another folder",
        )
        return step

    def batches(self, start: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns the batches of an input pipeline, starting at step `start`."""
        return batches.make_training_dataset(
            self.data.train,
            self.shape,
            batch_size=self.settings.train_batch_size,
            seed=self.settings.seed,
            start_step=start,
            num_pipelines=pipelines,
            pipeline=pipeline,
        )

    def evaluation(self) -> loop.Evaluate | None:
        """Returns a function that measures the dev splits, or None without any."""
        shares = self.step.num_shares
        outputs_of = functools.partial(
            collect_outputs,
            self.step.predict,
            shape=dataclasses.replace(self.shape, parts=shares, packing=False),
            batch_size=self.settings.eval_batch_size,
            title="evaluate",
        )
        self._evaluator = Evaluator(self, outputs_of)
        return self._evaluator if self.data.dev_splits else None

    def callbacks(self, lines: list[dict], progress: Progress) -> list[Callback]:
        """Returns the callbacks that detect a collapse and keep the best weights."""
        settings = self.settings
        evaluations = [line for line in lines if line["split"] == "eval"]
        metric = settings.metric or self.data.task.selecting_metric
        self.selection = KeepWeights(
            self.step.model,
            self.folder.join(BEST_FOLDER),
            metric,
            evaluations,
            self.averages,
            patience=settings.early_stopping_patience,
            writes=settings.keep == "best" and not self.helper,
        )
        collapse = Collapse(self, self._evaluator, evaluations, progress.lines)
        return [collapse, self.selection]

    def trained(self, last: int) -> None:
        """Loads the weights to keep into the model: the best ones, or the averages."""
        selection = self.selection
        if selection.should_stop:
            logging.info(
                "stopped early at step %d: no better %s since step %s",
                last,
                selection.metric,
                selection.best_step,
            )
        self.averages.replace_weights()
        # Only the chief needs them, and it may have removed their file by now.
        if selection.writes and selection.best_step not in (None, last):
            selection.restore(selection.best_step)

    def finish(self) -> dict[str, Any]:
        """Evaluates once more and moves the finished folder into place."""
        return outputs.finish(self)
