"""One training, from its inputs to its outputs, shared by `pretrain` and `finetune`.

Everything random is a function of the seed and the step, and every decision follows
from the metrics on record, so a run that was killed continues like an uninterrupted
one.
"""

import abc
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.errors import require
from albert_tf.objectives.pretraining import Objective
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training import loop
from albert_tf.training.callbacks import Callback, DivergedError, DivergenceGuard
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.engine import (
    Strategy,
    TrainStep,
    bring_home,
    create_strategy,
    distribute,
    helper_name,
    leave_together,
    share,
    worker_errors,
)
from albert_tf.training.metrics_file import METRICS_FILE, lines_until, read_metrics
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import (
    CHECKPOINT_FOLDER,
    EVALUATED,
    FINISHED,
    RunFolder,
    describe_command,
)
from albert_tf.training.settings import Phase, TrainingSettings
from albert_tf.training.weights import WeightAverages
from albert_tf.training.workers import check_equal

# Draws the pictures of the run in a folder, as `reports.run_page.draw_run`.
Draw = Callable[..., Mapping[str, bytes]]


def no_pictures(path: str, *args: Any, **known: Any) -> Mapping[str, bytes]:
    """A `Draw` that draws nothing."""
    return {}


@contextlib.contextmanager
def devices(settings: TrainingSettings) -> Iterator[Strategy]:
    """Makes the strategy of a run, and compares the commands of all workers.

    Raises:
        UsageError: If the devices do not exist, or Keras runs on another backend.
        DataError: If the workers differ, or one of them ends.
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


class Run(abc.ABC):
    """A training; derived classes define its inputs and outputs.

    Without a strategy, only the inputs are read.

    Attributes:
        draw: callable. Draws curves and page of the run.
        helper: str. Name of a worker that is not the chief; empty in the chief.
        folder: `RunFolder`. Set while the inputs are open.
        step: `TrainStep`. Set once the inputs are known to be valid.
        averages: `WeightAverages`. Averages of the run, while it trains.
        facts: dict. Facts that workers compare before the run is restored.
    """

    title: str
    asynchronous = False
    draw: Draw = staticmethod(no_pictures)

    def __init__(self, settings: Any, strategy: Strategy | None):
        self.settings = settings
        self.strategy = strategy
        self.helper = helper_name(strategy) if strategy else ""
        self.facts: dict[str, Any] = {}
        self.folder: RunFolder
        self.step: TrainStep
        self.averages: WeightAverages

    @abc.abstractmethod
    def open_inputs(self) -> contextlib.AbstractContextManager[Mapping[str, Any]]:
        """Reads and checks the inputs of the run, and opens its folder.

        Yields facts that workers compare, in addition to the content.
        """

    def is_finished(self) -> bool:
        """Returns whether the folder holds the results of the run."""
        return self.folder.is_finished

    @abc.abstractmethod
    def result(self) -> Any:
        """Returns the result of the finished run."""

    @abc.abstractmethod
    def make_step(self) -> TrainStep:
        """Makes model, objective and optimizer, before anything is written."""

    @property
    def phases(self) -> Sequence[Phase]:
        """The parts of the run, each with its own batches."""
        return [Phase(0, self.settings.num_train_steps, self.settings)]

    @abc.abstractmethod
    def batches(self, start: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns the batches of an input pipeline, starting at step `start`."""

    @abc.abstractmethod
    def evaluation(self) -> loop.Evaluate | None:
        """Returns a function that measures on held-out data, or None without any."""

    @abc.abstractmethod
    def callbacks(self, lines: list[dict], progress: Progress) -> list[Callback]:
        """Returns the callbacks of the loop; `lines` are the metrics on record."""

    def began(
        self, progress: Progress, checkpoints: TrainingCheckpoints, first: int | None
    ) -> None:
        """Is called before the first step; `first` is None without a checkpoint."""
        return

    def diverged(self, error: DivergedError) -> None:
        """Raises an error that ends the run, or returns to go back to a checkpoint."""
        raise error

    @abc.abstractmethod
    def trained(self, last: int) -> None:
        """Is called after the last step; loads the weights to keep into the model."""

    @abc.abstractmethod
    def finish(self) -> Any:
        """Writes the outputs of the run; returns `result`."""

    def execute(self) -> Any:
        """Runs the training, or the rest of it; returns `result`.

        Only the chief returns a result, unless the run was finished before.
        """
        with self.open_inputs() as facts:
            finished = self.is_finished()
            facts = {**self.folder.content, **facts, FINISHED: finished}
            check_equal(share(self.strategy, facts))
            if finished:
                if not self.helper:
                    self.folder.tidy()
                return self.result()
            self.step = self.make_step()
        if self.helper:
            self.train()
            leave_together(self.strategy)
            return None
        # Nothing is written or removed before every possible mistake has been checked.
        with self.folder.taken():
            self.train()
            result = self.finish()
        leave_together(self.strategy)
        return result

    def build_step(
        self,
        make_model: Callable[[str], keras.Model],
        objective: Objective,
        *,
        forward: str | None = None,
        fuse: bool = False,
        **optimizer: Any,
    ) -> TrainStep:
        """Returns the step of the run.

        Args:
            make_model: callable. Returns the model with a Keras dtype policy.
            forward: str or None. Method of the model that computes the training
                outputs.
            **optimizer: Arguments of `create_optimizer` that replace the settings.
        """
        settings = self.settings
        arguments = settings.optimizer_arguments
        with self.strategy.scope():
            model = make_model(settings.dtype)
            adam = create_optimizer(settings.optimizer, **{**arguments, **optimizer})
        keras.utils.set_random_seed(settings.seed)
        return TrainStep(
            model,
            objective,
            adam,
            self.strategy,
            seed=settings.seed,
            accumulation=settings.gradient_accumulation_steps,
            jit_compile=settings.jit_compile,
            fuse=fuse,
            depth=settings.depth,
            **({"shard_optimizer": True} if settings.shard_optimizer else {}),
            forward=getattr(model, forward) if forward else None,
        )

    def train(self) -> None:
        """Trains from the last checkpoint, if there is one, to the end."""
        settings, step = self.settings, self.step
        checkpoints = TrainingCheckpoints(
            self.folder.join(CHECKPOINT_FOLDER),
            step.model,
            step.optimizer,
            seed=settings.seed,
            keep=settings.keep_checkpoint_max,
            asynchronous=self.asynchronous,
            writes=not self.helper,
        )
        check_equal(share(self.strategy, {**self.facts, **checkpoints.facts()}))
        try:
            with loop.StopSignals() as signals:
                while not self._train_on(checkpoints, signals):
                    checkpoints.settle()
                    share(self.strategy, None)  # all read what the chief wrote
        finally:
            # Nothing may be written after the lock of the folder is released.
            checkpoints.settle()

    def _train_on(self, checkpoints: TrainingCheckpoints, signals) -> bool:
        """Trains from the last checkpoint; returns whether the end was reached."""
        restored = checkpoints.restore(self.folder.join(CHECKPOINT_FOLDER))
        check_equal(share(self.strategy, checkpoints.facts()))
        step, first, last = self.step, checkpoints.step, self.settings.num_train_steps
        self.averages = WeightAverages(step.model, step.optimizer)
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
            self.began(progress, checkpoints, restored)
            if first:
                progress.log(f"continuing from step {first}")
            evaluate = self.evaluation()
            callbacks = self.callbacks(lines, progress)
            for callback in callbacks:
                stack.callback(callback.on_end)
            for phase in self.phases:
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
                batches = distribute(
                    self.strategy, functools.partial(self.batches, start)
                )
                try:
                    loop.train(
                        step,
                        batches,
                        phase,
                        checkpoints,
                        progress,
                        evaluate,
                        [*callbacks, guard],
                        lines,
                        signals,
                        end=last,
                    )
                except DivergedError as e:
                    self.diverged(e)
                    return False
                lines.append({"split": "eval", "step": phase.last_step})
        bring_home(self.strategy, step.model)
        self.trained(checkpoints.step)
        return True
