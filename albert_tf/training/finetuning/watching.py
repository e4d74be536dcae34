"""What happens at every evaluation of a fine-tuning run."""

from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from albert_tf.training.callbacks import Callback
from albert_tf.training.finetuning.best import BestWeights
from albert_tf.training.finetuning.evaluation import (
    CollapsedError,
    CollapseDetector,
    Evaluator,
)
from albert_tf.training.finetuning.weighting import class_weights
from albert_tf.training.selection import Selection
from albert_tf.training.tensorflow.agreement import share
from albert_tf.training.tensorflow.averages import WeightAverages


class DevEvaluation:
    """Measures the dev splits, with the averages of the weights if there are any.

    Args:
        evaluator: `Evaluator`. Of the model in training.
        averages: `WeightAverages`.
        strategy: `tf.distribute.Strategy`. Its chief decides for all workers.

    Attributes:
        examples: Those of the split that decides, at the last call.
        answers: The answers to them.
    """

    def __init__(self, evaluator: Evaluator, averages: WeightAverages, strategy):
        self.evaluator = evaluator
        self._averages = averages
        self._strategy = strategy
        self.examples: Any = None
        self.answers: Any = None

    def __call__(self) -> dict[str, Any]:
        """Returns the metrics; those of other splits have the split's name first."""
        values: dict[str, Any] = {}
        with self._averages.in_place():
            self.evaluator.calibrate()
            for name in self.evaluator.dev_splits():
                answers = self.evaluator.answers(name)
                found = self.evaluator.metrics(name, answers)
                if not values:
                    values = dict(found)
                    self.examples = self.evaluator.splits[name].examples
                    self.answers = answers
                else:
                    values |= {f"{name}_{key}": value for key, value in found.items()}
        # Every worker computed all of it, perhaps with other last bits.
        return share(self._strategy, values)[0]


class Collapse(Callback):
    """Notices a collapse, and warns or ends the run.

    Args:
        run: `finetune.Run`.
        evaluation: `DevEvaluation`.
        lines: list of dict. Metrics on record.
        recorded: callable. Returns what has been recorded, for the lines of training.
    """

    def __init__(
        self,
        run,
        evaluation: DevEvaluation,
        lines: list[dict],
        recorded: Callable[[], list[dict]],
    ):
        self._strategy = run.strategy
        self._must_end = run.settings.on_collapse != "warn"
        self._evaluation = evaluation
        self._recorded = recorded
        self._evaluations = [line for line in lines if line["split"] == "eval"]
        self._detector = CollapseDetector(
            run.task,
            run.data.train.targets,
            run.settings.num_warmup_steps,
            run.settings.num_train_steps,
            class_weights(run.settings, run.task, run.data.train),
            run.settings.label_smoothing,
        )
        self._has_warned = False

    def on_evaluate(self, step: int, values: dict[str, Any]) -> None:
        """Judges the evaluation; raises CollapsedError if the run is to end."""
        train = [line for line in self._recorded() if line["split"] == "train"]
        examples, answers = self._evaluation.examples, self._evaluation.answers
        lines = train + self._evaluations
        found = self._detector.find(step, examples, answers, lines)
        reason, certain = share(self._strategy, found)[0]
        if certain:
            self._report(step, reason)
        if reason:
            values["collapsed"] = 1.0
        self._evaluations.append({"split": "eval", "step": step, **values})

    def _report(self, step: int, reason: str) -> None:
        text = (
            f"training collapsed at step {step}: {reason}; try a lower "
            "--learning_rate, a longer warm-up, a larger batch or another --seed"
        )
        if self._must_end:
            raise CollapsedError(text)
        if not self._has_warned:
            self._has_warned = True
            logging.warning("%s", text)


class KeepWeights(Callback):
    """Keeps the best weights, and ends a run that has not become better for long.

    Args:
        best: `BestWeights`.
        selection: `Selection`. Knows the evaluations on record.
        averages: `WeightAverages`. What is kept, if there are any.
        writes: bool. Whether this process keeps the best weights.
    """

    def __init__(
        self,
        best: BestWeights,
        selection: Selection,
        averages: WeightAverages,
        writes: bool,
    ):
        self._best = best
        self._selection = selection
        self._averages = averages
        self._writes = writes

    @property
    def should_stop(self) -> bool:
        """Whether there was no better evaluation for too long."""
        return self._selection.should_stop

    def on_evaluate(self, step: int, values: Mapping[str, Any]) -> None:
        """Keeps the weights of the best evaluation so far."""
        if self._selection.add(step, values) and self._writes:
            with self._averages.in_place():
                self._best.save(step)

    def on_save(self) -> None:
        """Removes the weights that a run continued from now on cannot need."""
        if self._writes:
            self._best.keep_only(self._selection.best_step)
