"""A fine-tuning run, from its settings to a folder with a model and its results."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from albert_tf.errors import require
from albert_tf.heads import NONE
from albert_tf.objectives.distillation import Taught
from albert_tf.objectives.finetuning import for_task, with_exits
from albert_tf.storage import files
from albert_tf.tasks import batches
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.embedding import EmbeddingTask
from albert_tf.tasks.labels import class_weights
from albert_tf.training import (
    examples,
    finetune_outputs,
    run_folder,
    start,
    teachers,
    vectors,
)
from albert_tf.training.callbacks import KeepWeights
from albert_tf.training.context import Draw, no_pictures
from albert_tf.training.engine import Strategy, helper_name, is_one_of_several
from albert_tf.training.evaluation import Collapse, Evaluator
from albert_tf.training.examples import Read, RunExamples, Split
from albert_tf.training.finetune_settings import (
    FinetuneSettings,
    learning_rate_multipliers,
)
from albert_tf.training.progress import Progress
from albert_tf.training.run import Observers, Run, build_step, devices, is_done
from albert_tf.training.start import Start
from albert_tf.training.weights import WeightAverages


def finetune_once(
    settings: FinetuneSettings,
    read: Callable[[], Read] | None = None,
    draw: Draw = no_pictures,
) -> dict:
    """Trains on a task and writes a folder with the model and its measurements.

    An unfinished run in the folder is continued; if it is finished, its results are
    returned. Arguments, result and errors are as in `seeds.finetune`, which also
    handles `num_seeds` and the restart after a collapse.
    """
    with devices(settings) as strategy:
        with read_inputs(settings, read) as inputs:
            folder = run_folder.open_run(inputs.settings, inputs.content)
            folder.origin = inputs.start.origin
            facts = {"other run in --output_dir": folder.replaces}
            if is_done(strategy, folder, folder.is_finished, facts):
                return files.read_json(folder.join(run_folder.METRICS))
            run = _begin(inputs, folder, strategy, draw)
        return run.execute() or {}


class Inputs(NamedTuple):
    """The inputs of a run, checked, while its initial weights are open.

    Attributes:
        settings: `FinetuneSettings`. Every value is known.
        rates: dict. Factors of the layers' learning rates, by patterns of paths.
        content: dict. Everything else that decides the result, ready for JSON.
    """

    settings: FinetuneSettings
    data: RunExamples
    start: Start
    rates: Mapping[str, float]
    content: Mapping[str, Any]


@contextlib.contextmanager
def read_inputs(
    settings: FinetuneSettings, read: Callable[[], Read] | None = None
) -> Iterator[Inputs]:
    """Reads the examples, opens the model to start from, resolves the settings."""
    settings, task, parts = read() if read else examples.read_task(settings)
    with start.open_start(settings) as begin:
        tokenizer = begin.tokenizer
        start.check_layers(settings, begin.config)
        task = begin.choose_head(task)
        if begin.checkpoint is not None:
            task = vectors.with_prompts(task, begin.checkpoint.head_options)
        settings, task = examples.with_lengths(settings, task, begin.config, tokenizer)
        data = examples.encode(task, parts, tokenizer)
        data.check_metric(settings.metric, settings.needs_dev())
        recipe = examples.recipe_of(settings, task)
        settings = settings.resolved(len(data.train), recipe)
        begin.use_dropout(settings.dropout)
        rates = learning_rate_multipliers(
            settings.layerwise_decay, begin.config, settings.layerwise_decay_rule
        )
        content = start.content_of(
            data.digest(), tokenizer, begin.config, begin.checkpoint, settings.teacher
        )
        yield Inputs(settings, data, begin, rates, content)


def _begin(
    inputs: Inputs, folder: run_folder.RunFolder, strategy: Strategy, draw: Draw
) -> "Finetuning":
    """Builds the model with its initial weights, and its step."""
    settings, data, begin = inputs.settings, inputs.data, inputs.start
    task = data.task
    if settings.teacher:
        path, several = settings.cache_teacher, is_one_of_several(strategy)
        need = "cache_teacher: several workers cannot write it; a run of one can"
        require(not several or not path or files.exists(path), need, path)
        train = data.splits["train"]
        parts = (task, train.examples, train.encoded, begin.tokenizer)
        train = Split(train.examples, teachers.taught(settings, *parts))
        data = RunExamples(task, {**data.splits, "train": train})
    options, weights = {}, class_weights(settings.class_weights, task, data.train)
    if isinstance(task, EmbeddingTask):
        stored = begin.checkpoint.head_options if begin.checkpoint else {}
        kept, width = stored.get("projection_size"), begin.config.hidden_size
        options = vectors.model_arguments(settings, task, data.train, width, kept)
    step = build_step(
        settings,
        strategy,
        functools.partial(begin.make_model, task, **options),
        functools.partial(_objective, settings, data, weights),
        learning_rate_multipliers=inputs.rates,
    )
    step.model.max_seq_length = task.options.max_seq_length
    averages = WeightAverages(step.model, step.optimizer)
    selection = KeepWeights(
        step.model,
        folder.join(run_folder.BEST_FOLDER),
        settings.metric or task.selecting_metric,
        averages,
        patience=settings.early_stopping_patience,
        writes=settings.keep == "best" and not helper_name(strategy),
    )
    run = Finetuning(
        settings, folder, begin.tokenizer, data, step, averages, draw, selection
    )
    # Each input pipeline produces the share of one process.
    pipelines = strategy.num_replicas_in_sync // step.num_shares
    batches.check(data.train, run.shape, settings.train_batch_size, pipelines)
    require(
        not (is_one_of_several(strategy) and folder.replaces),
        f"output_dir: {folder.path} holds another run, which several workers cannot "
        "replace; remove it, or give another folder",
    )
    return run


def _objective(
    settings: FinetuneSettings,
    data: RunExamples,
    weights: Sequence[float],
    model: keras.Model,
) -> tuple[Any, Callable | None]:
    """Returns the objective, and a function that computes the outputs it takes."""
    task, train = data.task, data.splits["train"]
    if isinstance(task, EmbeddingTask):
        form = train.examples.form
        objective, layers = vectors.make_objective(settings, form, train.encoded, model)
        every_layer = functools.partial(model.every_layer, layers=layers)
        return objective, every_layer if layers else None
    objective = for_task(
        task.head,
        task.problem_type,
        class_weights=weights,
        label_smoothing=settings.label_smoothing,
    )
    if settings.teacher:
        share = settings.teacher_weight, settings.teacher_temperature
        objective = Taught(objective, *share)
    layers = model.config.num_hidden_layers
    objective = with_exits(objective, layers - 1, settings.exits)
    return objective, None if settings.exits == NONE else model.every_exit


class Finetuning(Run):
    """One fine-tuning run."""

    title = "finetune"

    @functools.cached_property
    def shape(self) -> BatchShape:
        """Shape of the training batches of one input pipeline."""
        settings, options = self.settings, self.data.task.options
        model = self.step.model
        longest, on_jax = options.max_seq_length, settings.backend == "jax"
        several = is_one_of_several(self.strategy)
        # JAX compiles a step for each length; all processes must use the same one.
        few = on_jax and not settings.fixed_length and not several
        return BatchShape(
            self.data.task.head,
            longest,
            model.config.max_position_embeddings,
            self.tokenizer.pad_id,
            parts=self.step.num_shares * settings.gradient_accumulation_steps,
            # A maximum over texts of one row would need a copy of the row for each.
            packing=settings.packing and getattr(model, "pooling", "") != "max",
            fixed_length=settings.fixed_length or on_jax,
            lengths=batches.halved(longest) if few else (),
        )

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

    def observers(self, lines: list[dict], progress: Progress) -> Observers:
        """Measures the dev splits, detects a collapse and keeps the best weights."""
        evaluator = Evaluator(self, self.shape)
        evaluations = [line for line in lines if line["split"] == "eval"]
        self.selection.resume(evaluations)
        settings, data = self.settings, self.data
        weights = class_weights(settings.class_weights, data.task, data.train)
        collapse = Collapse(self, weights, evaluator, evaluations, progress.lines)
        evaluate = evaluator if data.dev_splits else None
        return evaluate, [collapse, self.selection]

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
        return finetune_outputs.finish(self, self.shape)
