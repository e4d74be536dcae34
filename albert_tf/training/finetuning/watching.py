"""What happens at every evaluation of a fine-tuning run."""

from typing import Any

from absl import logging

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
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints


class Watch:
    """Evaluates, keeps the best weights, and notices a collapse.

    Args:
        run: `finetune.Run`.
        evaluator: `Evaluator`. Of the model in training.
        selection: `Selection`. Knows the evaluations on record.
        best: `BestWeights`.
        checkpoints: `TrainingCheckpoints`. Knows the step.
        lines: list of dict. Metrics on record.

    Attributes:
        averages: `WeightAverages`. What is evaluated and kept, if there are any.
        progress: `Progress`. Set before training.
    """

    def __init__(
        self,
        run,
        evaluator: Evaluator,
        selection: Selection,
        best: BestWeights,
        checkpoints: TrainingCheckpoints,
        lines: list[dict],
    ):
        self.run = run
        self.evaluator = evaluator
        self.selection = selection
        self.best = best
        self.checkpoints = checkpoints
        self.averages = WeightAverages(run.step.model, run.step.optimizer)
        self.progress: Any = None
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

    def evaluate(self) -> dict[str, Any]:
        """Evaluates the dev splits; the weights are kept if they are the best ones.

        With `ema_decay`, these are the averages.
        """
        with self.averages.in_place():
            return self._evaluate()

    def _evaluate(self) -> dict[str, Any]:
        step, evaluator = self.checkpoints.step, self.evaluator
        evaluator.calibrate()
        values: dict[str, Any] = {}
        collapse = "", False
        for name in evaluator.dev_splits():
            answers = evaluator.answers(name)
            found = evaluator.metrics(name, answers)
            if not values:
                values = dict(found)
                collapse = self._find_collapse(step, name, answers)
            else:
                values |= {f"{name}_{key}": value for key, value in found.items()}
        # Every worker computed all of it, perhaps with other last bits.
        values, reason, certain = share(self.run.strategy, [values, *collapse])[0]
        if certain:
            self._report_collapse(step, reason)
        if reason:
            values["collapsed"] = 1.0
        # Written before the evaluation is on record: a run killed between the two
        # evaluates again, and writes the same weights again.
        is_best = self.selection.add(step, values)
        if is_best and self.run.settings.keep == "best" and not self.run.helper:
            self.best.save(step)
        self._evaluations.append({"split": "eval", "step": step, **values})
        return values

    def saved(self) -> None:
        """Removes the weights that a run continued from now on cannot need."""
        if not self.run.helper:
            self.best.keep_only(self.selection.best_step)

    def _find_collapse(self, step: int, name: str, answers) -> tuple[str, bool]:
        train = [line for line in self.progress.lines() if line["split"] == "train"]
        examples = self.evaluator.splits[name].examples
        return self._detector.find(step, examples, answers, train + self._evaluations)

    def _report_collapse(self, step: int, reason: str) -> None:
        text = (
            f"training collapsed at step {step}: {reason}; try a lower "
            "--learning_rate, a longer warm-up, a larger batch or another --seed"
        )
        if self.run.settings.on_collapse != "warn":
            raise CollapsedError(text)
        if not self._has_warned:
            self._has_warned = True
            logging.warning("%s", text)
