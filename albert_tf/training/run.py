"""One training, from its first step to its last, shared by `pretrain` and `finetune`.

Everything random is a function of the seed and the step, and every decision follows
from the metrics on record, so a run that was killed continues like an uninterrupted
one.
"""

import abc
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from albert_tf.errors import require
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training import loop
from albert_tf.training.callbacks import Callback, DivergedError, DivergenceGuard
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.context import RunContext
from albert_tf.training.engine import (
    Strategy,
    TrainStep,
    bring_home,
    compilation_cache,
    create_strategy,
    distribute,
    helper_name,
    leave_together,
    share,
    worker_errors,
)
from albert_tf.training.metrics_file import METRICS_FILE, lines_until, read_metrics
from albert_tf.training.profile import Profile
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import (
    CHECKPOINT_FOLDER,
    COMPILED_FOLDER,
    EVALUATED,
    FINISHED,
    RunFolder,
    describe_command,
)
from albert_tf.training.settings import TrainingSettings
from albert_tf.training.workers import check_equal

# What measures on held-out data, if there is any, and the callbacks of the loop.
Observers = tuple[loop.Evaluate | None, list[Callback]]


@contextlib.contextmanager
def devices(settings: TrainingSettings) -> Iterator[Strategy]:
    """Makes the strategy of a run, and compares the commands of all workers.

    Raises `UsageError` if the devices do not exist, or Keras runs on another backend,
    and `DataError` if the workers differ, or one of them ends.
    """
    engine = keras.backend.backend()
    need = f"--backend={settings.backend}: Keras was started with KERAS_BACKEND"
    require(engine == settings.backend, need, engine)
    strategy = create_strategy(
        settings.distribution,
        num_devices=settings.num_devices,
        tpu_name=settings.tpu_name,
        worker_timeout=settings.worker_timeout,
        # JAX has no such argument.
        **({"allow_tpu_pod": True} if settings.allow_tpu_pod else {}),
    )
    with worker_errors(strategy):
        check_equal(share(strategy, describe_command(settings)))
        yield strategy


def build_step(
    settings: TrainingSettings,
    strategy: Strategy,
    make_model: Callable[[str], keras.Model],
    make_objective: Callable[[keras.Model], tuple[Any, Callable | None]],
    **optimizer: Any,
) -> TrainStep:
    """Returns the step of a run, whose model gets a Keras dtype policy.

    `make_objective` also returns a function that computes the outputs to train on, or
    None for the model itself. `optimizer` holds arguments that are not settings.
    """
    arguments = {**settings.optimizer_arguments, **optimizer}
    with strategy.scope():
        model = make_model(settings.dtype)
        adam = create_optimizer(settings.optimizer, **arguments)
        keras.utils.set_random_seed(settings.seed)
        objective, forward = make_objective(model)
    return TrainStep(
        model,
        objective,
        adam,
        strategy,
        seed=settings.seed,
        accumulation=settings.gradient_accumulation_steps,
        jit_compile=settings.jit_compile,
        fuse=settings.fuse_elementwise,
        depth=settings.depth,
        random_depth=settings.random_depth,
        **({"shard_optimizer": True} if settings.shard_optimizer else {}),
        forward=forward,
    )


def is_done(
    strategy: Strategy, folder: RunFolder, finished: bool, facts: Mapping[str, Any]
) -> bool:
    """Returns whether a run is finished, after comparing the inputs of all workers."""
    facts = {**folder.content, **facts, FINISHED: finished}
    check_equal(share(strategy, facts))
    if finished and not helper_name(strategy):
        folder.tidy()
    return finished


class Run(RunContext, abc.ABC):
    """A training that can begin; derived classes say what differs."""

    title: ClassVar[str]

    @abc.abstractmethod
    def batches(self, start: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns the batches of an input pipeline, starting at step `start`."""

    @abc.abstractmethod
    def observers(self, lines: list[dict], progress: Progress) -> Observers:
        """Makes the function that evaluates, and callbacks, for metrics on record."""

    def began(
        self,
        progress: Progress,
        checkpoints: TrainingCheckpoints,
        error: DivergedError | None,
    ) -> None:
        """Is called before the first step, or after going back because of an error."""
        return

    def diverged(self, error: DivergedError) -> None:
        """Raises an error that ends the run, or returns to go back to a checkpoint."""
        raise error

    @abc.abstractmethod
    def trained(self, last: int) -> None:
        """Is called after the last step; loads the weights to keep into the model."""

    @abc.abstractmethod
    def finish(self) -> Any:
        """Writes the outputs of the run; returns its result."""

    def execute(self) -> Any:
        """Runs the training, or the rest of it; only the chief returns a result."""
        asked = self.settings.compilation_cache
        programs = compilation_cache(asked, self.folder.join(COMPILED_FOLDER))
        if self.helper:
            with programs:
                self.train()
            leave_together(self.strategy)
            return None
        # Nothing is written or removed before every possible mistake has been checked.
        with self.folder.taken(), programs:
            self.train()
            result = self.finish()
        leave_together(self.strategy)
        return result

    def train(self, **facts: Any) -> None:
        """Trains from the last checkpoint, if there is one, to the end.

        Workers compare the facts before the run is restored.
        """
        settings, step = self.settings, self.step
        checkpoints = TrainingCheckpoints(
            self.folder.join(CHECKPOINT_FOLDER),
            step.model,
            step.optimizer,
            extra=step.extra,
            seed=settings.seed,
            keep=settings.keep_checkpoint_max,
            asynchronous=settings.async_checkpoint,
            writes=not self.helper,
        )
        check_equal(share(self.strategy, {**facts, **checkpoints.facts()}))
        error = None
        try:
            with loop.StopSignals() as signals:
                while error := self._train_on(checkpoints, signals, error):
                    checkpoints.settle()
                    share(self.strategy, None)  # all read what the chief wrote
        finally:
            # Nothing may be written after the lock of the folder is released.
            checkpoints.settle()

    def _train_on(
        self,
        checkpoints: TrainingCheckpoints,
        signals: loop.StopSignals,
        error: DivergedError | None,
    ) -> DivergedError | None:
        """Trains from the last checkpoint; returns the error to go back for."""
        checkpoints.restore(checkpoints.folder)
        check_equal(share(self.strategy, checkpoints.facts()))
        step, first, last = self.step, checkpoints.step, self.settings.num_train_steps
        # Every worker reads the metrics, because all take part in evaluations.
        lines = lines_until(read_metrics(self.folder.join(METRICS_FILE)), first)
        evaluated = [line["step"] for line in lines if line["split"] == "eval"]
        check_equal(share(self.strategy, {EVALUATED: evaluated}))
        bar = Progress(
            self.folder.path,
            first,
            last,
            chief=not self.helper,
            title=self.title,
            shown=step.objective.shown,
        )
        with bar as progress, contextlib.ExitStack() as stack:
            self.began(progress, checkpoints, error)
            if first:
                progress.log(f"continuing from step {first}")
            evaluate, callbacks = self.observers(lines, progress)
            if self.settings.profile_steps and not self.helper:
                callbacks.append(Profile(self.folder, self.settings, progress))
            for callback in callbacks:
                stack.callback(callback.on_end)
            for phase in self.settings.phases:
                start = max(checkpoints.step, phase.first_step)
                if start > phase.last_step:
                    continue
                # The usual loss differs for longer sequences.
                usual = [line for line in lines if line["step"] > phase.first_step]
                guard = DivergenceGuard(
                    usual,
                    max_loss_ratio=self.settings.max_loss_ratio,
                    max_norm_ratio=self.settings.max_grad_norm_ratio,
                )
                from_start = functools.partial(self.batches, start)
                batches = distribute(self.strategy, from_start)
                watching = [*callbacks, guard]
                training = loop.Loop(
                    step, checkpoints, progress, evaluate, watching, signals, last
                )
                try:
                    training.train(phase, batches, lines)
                except DivergedError as e:
                    self.diverged(e)
                    return e
                lines.append({"split": "eval", "step": phase.last_step})
        bring_home(self.strategy, step.model)
        self.trained(checkpoints.step)
        return None
