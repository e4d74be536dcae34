"""Fine-tunes a model on a task: one run, resumable at any moment.

Everything random is a function of the seed and the step, and every decision follows
from the metrics on record, so a run that was killed continues as if it had not been.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.errors import UsageError
from albert_tf.objectives.exit_modes import NONE
from albert_tf.objectives.exits import with_exits
from albert_tf.objectives.finetuning import for_task
from albert_tf.optimizers.create import create_optimizer
from albert_tf.reports.metrics_file import METRICS_FILE, lines_until, read_metrics
from albert_tf.storage import files
from albert_tf.tasks import batches
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.registry import find_recipe
from albert_tf.tasks.task import Task
from albert_tf.text import inputs
from albert_tf.training import examples as run_examples
from albert_tf.training import finetune_folder as folder
from albert_tf.training import loop, outputs
from albert_tf.training import start as weighting
from albert_tf.training.callbacks import BestWeights, DivergenceGuard, Selection
from albert_tf.training.evaluation import (
    Collapse,
    DevEvaluation,
    Evaluator,
    KeepWeights,
)
from albert_tf.training.examples import RunExamples, check_metric
from albert_tf.training.finetune_settings import CONTENT_OF, FinetuneSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import (
    EVALUATED,
    FINISHED,
    RunFolder,
    describe_command,
)
from albert_tf.training.start import Start, open_start
from albert_tf.training.tensorflow.checkpoints import (
    TrainingCheckpoints,
    WeightAverages,
)
from albert_tf.training.tensorflow.step import TrainStep, distribute
from albert_tf.training.tensorflow.strategy import (
    check_agreement,
    create_strategy,
    helper_name,
    worker_errors,
)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run consists of, once its inputs are read.

    Attributes:
        settings: `FinetuneSettings`. Resolved.
        data: `RunExamples`.
        shape: `BatchShape`. Of training batches, for one input pipeline.
        tokenizer: `Tokenizer`. The model's.
        step: `TrainStep`.
        strategy: `tf.distribute.Strategy`.
    """

    settings: FinetuneSettings
    data: RunExamples
    shape: BatchShape
    tokenizer: Any
    step: TrainStep
    strategy: tf.distribute.Strategy

    @property
    def task(self) -> Task:
        """The task, with its labels and options."""
        return self.data.task

    @property
    def helper(self) -> str:
        """Name of a worker that is not the chief; empty in the chief."""
        return helper_name(self.strategy)

    def make_evaluator(self) -> Evaluator:
        """Returns an evaluator of the model in training."""
        return Evaluator(
            self.task,
            self.data.splits,
            dataclasses.replace(self.shape, parts=self.step.num_shares),
            self.settings.eval_batch_size,
            self.step.predict,
        )


def finetune_once(
    settings: FinetuneSettings, read: tuple | None = None
) -> dict[str, Any]:
    """Trains on a task and writes a folder with the model and its measurements.

    If the folder holds this same run, unfinished, it is continued; if it is finished,
    its results are returned.

    Args:
        settings: `FinetuneSettings`. `num_seeds` and the restart after a collapse are
            handled by `trials`.
        read: tuple or None. See `open_inputs`.

    Returns:
        The content of `metrics.json`.

    Raises:
        UsageError: If a setting is invalid, or the folder cannot be used.
        DataError: If an input file is invalid, or the training diverges or collapses.
    """
    settings = folder.prepared(settings)
    strategy = create_strategy(
        settings.distribution,
        num_devices=settings.num_devices,
        tpu_name=settings.tpu_name,
        worker_timeout=settings.worker_timeout,
    )
    with worker_errors(strategy):
        facts = describe_command(settings, {*CONTENT_OF, "output_dir"})
        check_agreement(strategy, facts)
        return _finetune(settings, strategy, read)


def _finetune(
    settings: FinetuneSettings, strategy: tf.distribute.Strategy, read: tuple | None
) -> dict[str, Any]:
    with open_inputs(settings, read) as (settings, start, data):
        content = content_of(start, data)
        run_folder = folder.open_run(settings, content)
        finished = run_folder is not None and run_folder.is_finished
        check_agreement(strategy, {**content, FINISHED: finished})
        if finished:
            if not helper_name(strategy):
                folder.tidy(settings.output_dir)
            return files.read_json(run_folder.join(folder.METRICS))
        run = _make_run(settings, data, start, strategy)
    if run.helper:
        if run_folder is None:
            raise UsageError(
                f"output_dir: {settings.output_dir} holds another run, which several "
                "workers cannot replace; remove it, or give another folder"
            )
        _train(run, run_folder)
        return {}
    # Nothing is written or removed before all that can be wrong has been checked.
    with folder.taken(settings, content, run_folder, start.origin) as run_folder:
        return outputs.finish(run, run_folder, _train(run, run_folder))


@contextlib.contextmanager
def open_inputs(
    settings: FinetuneSettings, read: tuple | None = None
) -> Iterator[tuple[FinetuneSettings, Start, RunExamples]]:
    """Reads what a run starts from.

    Args:
        settings: `FinetuneSettings`.
        read: tuple or None. Result of `run_examples.read_task`, if it has been called.

    Yields:
        The resolved settings, the open `Start`, and the encoded `RunExamples`.
    """
    settings, task, examples = read or run_examples.read_task(settings)
    with open_start(settings) as start:
        task = start.choose_head(task)
        settings, task = _resolve(settings, task, start.config)
        data = run_examples.encode(task, examples, start.tokenizer)
        check_metric(task, data.splits, settings.metric, settings.needs_dev())
        settings = settings.resolved(len(data.train), _recipe(settings, task))
        start.use_dropout(settings.dropout)
        weighting.learning_rate_multipliers(settings.layerwise_decay, start.config)
        yield settings, start, data


def _resolve(settings, task: Task, config) -> tuple[FinetuneSettings, Task]:
    """Decides the sizes of rows: those given, the recipe's, the task's, the model's."""
    longest = config.max_position_embeddings
    length = settings.max_seq_length
    if length is None:
        recipe = _recipe(settings, task)
        length = min(recipe.get("max_seq_length", task.options.max_seq_length), longest)
    inputs.check_max_seq_length(length, pairs=False, longest=longest)
    given = {
        name: getattr(settings, name, None)
        for name in (field.name for field in dataclasses.fields(task.options))
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    chosen["max_seq_length"] = length
    options = dataclasses.replace(task.options, **chosen)
    budget = length - options.max_query_length - 3
    if settings.doc_stride is None and budget > 0:
        # In short rows, the usual step would be longer than a window.
        stride = min(options.doc_stride, -(-budget // 2))
        options = dataclasses.replace(options, doc_stride=stride)
    settings = dataclasses.replace(settings, max_seq_length=length)
    return settings, dataclasses.replace(task, options=options)


def _recipe(settings: FinetuneSettings, task: Task) -> dict[str, Any]:
    recipe = find_recipe(settings.recipe) if settings.recipe else task.recipe
    return dataclasses.asdict(recipe) if recipe else {}


def content_of(start: Start, data: RunExamples) -> dict[str, Any]:
    """Returns what decides the result beside the settings, ready for JSON."""
    tokenizer = start.tokenizer
    return {
        "data": data.digest(),
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": start.config.to_dict(),
        "init_checkpoint": start.digest(),
    }


def _make_run(settings, data: RunExamples, start: Start, strategy) -> Run:
    task = data.task
    dtype = "mixed_bfloat16" if settings.precision == "bfloat16" else "float32"
    with strategy.scope():
        model = start.make_model(task, dtype)
        optimizer = create_optimizer(
            settings.optimizer,
            learning_rate=settings.learning_rate,
            num_train_steps=settings.num_train_steps,
            num_warmup_steps=settings.num_warmup_steps,
            weight_decay_rate=settings.weight_decay_rate,
            clip_norm=settings.clip_norm,
            learning_rate_schedule=settings.learning_rate_schedule,
            num_decay_steps=settings.num_decay_steps,
            ema_decay=settings.ema_decay,
            learning_rate_multipliers=weighting.learning_rate_multipliers(
                settings.layerwise_decay, start.config
            ),
        )
    keras.utils.set_random_seed(settings.seed)
    model.max_seq_length = task.options.max_seq_length
    objective = for_task(
        task.head,
        task.problem_type,
        class_weights=weighting.class_weights(settings, task, data.train),
        label_smoothing=settings.label_smoothing,
    )
    step = TrainStep(
        model,
        with_exits(objective, start.config.num_hidden_layers - 1, settings.exits),
        optimizer,
        strategy,
        seed=settings.seed,
        accumulation=settings.gradient_accumulation_steps,
        jit_compile=settings.jit_compile,
        forward=None if settings.exits == NONE else model.every_exit,
    )
    shape = BatchShape(
        task.head,
        task.options.max_seq_length,
        start.config.max_position_embeddings,
        start.tokenizer.pad_id,
        parts=step.num_shares * settings.gradient_accumulation_steps,
        packing=settings.packing,
        fixed_length=settings.fixed_length,
    )
    # Each input pipeline makes the share of one process.
    pipelines = strategy.num_replicas_in_sync // step.num_shares
    batches.check(data.train, shape, settings.train_batch_size, pipelines)
    return Run(settings, data, shape, start.tokenizer, step, strategy)


def _train(run: Run, run_folder: RunFolder) -> Selection:
    """Trains from the last checkpoint to the end; returns what was selected."""
    settings, step = run.settings, run.step
    checkpoints = _restore(run, run_folder)
    first = checkpoints.step
    metrics = read_metrics(run_folder.join(METRICS_FILE))
    lines = lines_until(metrics, first)
    evaluated = [line["step"] for line in lines if line["split"] == "eval"]
    check_agreement(run.strategy, {EVALUATED: evaluated})
    best = BestWeights(run_folder.join(folder.BEST_FOLDER), step.model)
    selection = Selection(
        settings.metric or run.task.selecting_metric,
        settings.early_stopping_patience,
        [line for line in lines if line["split"] == "eval"],
    )
    averages = WeightAverages(step.model, step.optimizer)
    evaluator = run.make_evaluator()
    evaluate = DevEvaluation(evaluator, averages, run.strategy)
    keeps_best = settings.keep == "best" and not run.helper
    bar = Progress(
        run_folder,
        first,
        settings.num_train_steps,
        chief=not run.helper,
        title="finetune",
        shown=step.objective.shown,
    )
    with bar as progress:
        if first:
            progress.log(f"continuing from step {first}")
        loop.train(
            step,
            distribute(run.strategy, lambda n, i: _batches(run, first, n, i)),
            settings.intervals(),
            checkpoints,
            progress,
            evaluate if evaluator.dev_splits() else None,
            [
                Collapse(run, evaluate, lines, progress.lines),
                KeepWeights(best, selection, averages, keeps_best),
                DivergenceGuard(),
            ],
            lines,
        )
    if selection.should_stop:
        logging.info(
            "stopped early at step %d: no better %s since step %s",
            checkpoints.step,
            selection.metric,
            selection.best_step,
        )
    averages.replace_weights()
    # Only the chief goes on with them, and it may have removed their file by now.
    if keeps_best and selection.best_step not in (None, checkpoints.step):
        best.restore(selection.best_step)
    return selection


def _restore(run: Run, run_folder: RunFolder) -> TrainingCheckpoints:
    """Returns the checkpoints of a run, restored to the last one if there is one."""
    settings, step = run.settings, run.step
    checkpoints = TrainingCheckpoints(
        run_folder.join(folder.CHECKPOINT_FOLDER),
        step.model,
        step.optimizer,
        seed=settings.seed,
        keep=settings.keep_checkpoint_max,
        helper=run.helper,
    )
    check_agreement(run.strategy, checkpoints.facts())
    checkpoints.restore(run_folder.join(folder.CHECKPOINT_FOLDER))
    check_agreement(run.strategy, checkpoints.facts())
    return checkpoints


def _batches(run: Run, start_step: int, num_pipelines: int, pipeline: int):
    return batches.make_training_dataset(
        run.data.train,
        run.shape,
        batch_size=run.settings.train_batch_size,
        seed=run.settings.seed,
        start_step=start_step,
        num_pipelines=num_pipelines,
        pipeline=pipeline,
    )
