"""The model of the best evaluation of a run, kept beside its checkpoints."""

import math
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert_tf.converters.keras_model import from_model
from albert_tf.converters.load import write_files
from albert_tf.errors import DataError, UsageError
from albert_tf.objectives.objective import Objective
from albert_tf.storage import files, folders
from albert_tf.training.callbacks import Callback
from albert_tf.training.selection import Selection
from albert_tf.training.tensorflow.averages import WeightAverages
from albert_tf.training.tensorflow.step import TrainStep

BEST_FOLDER = "best"
# Beside the model: which evaluation it is of.
BEST_FILE = "best.json"
_EVALUATED_ON = "evaluated_on"


def check_metric(metric: str, objective: Objective, with_averages: bool) -> None:
    """Checks that an evaluation can have a metric.

    Raises:
        UsageError: If it cannot.
    """
    kinds = ("loss", "accuracy")
    names = ["loss", *(f"{t.name}_{kind}" for t in objective.terms for kind in kinds)]
    if with_averages:
        names += [f"ema_{name}" for name in names]
    if metric not in names:
        raise UsageError(
            f"--keep_best must be one of {', '.join(names)}, received {metric!r}"
        )


class KeepBest(Callback):
    """Writes the model after each evaluation that is better than all before it.

    The file beside the model says which one was the best so far, so a resumed run
    compares with it. An evaluation that a resumed run repeats changes nothing. Numbers
    of other examples are not compared: the first evaluation of them is the best.

    Args:
        folder: str. The folder to write, a model folder like that of the run.
        metric: str. Name of the metric that decides. If it begins with `ema_`, the
            model has the averages.
        step: `TrainStep` of the run, with its model.
        averages: `WeightAverages`. Those of the run.
        tokenizer: `Tokenizer`. Is written with the model.
        evaluated_on: dict. What distinguishes the examples of the evaluations.
    """

    def __init__(
        self,
        folder: str,
        metric: str,
        step: TrainStep,
        averages: WeightAverages,
        tokenizer: Any,
        evaluated_on: Mapping[str, Any],
    ):
        self.folder = folder
        self._train_step = step
        self.tokenizer = tokenizer
        self._averages = averages
        self._evaluated_on = dict(evaluated_on)
        lines = _recorded(folder, metric, self._evaluated_on)
        self._selection = Selection(metric, 0, lines)

    def on_evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the model if these metrics of it are the best ones so far.

        Raises:
            UsageError: If the metric is not among them.
        """
        metric = self._selection.metric
        if metric not in values:
            raise UsageError(
                f"--keep_best={metric}: the evaluation data has no such metric, only "
                f"{', '.join(values)}"
            )
        if not math.isfinite(values[metric]):
            logging.warning(
                "%s: the %s of step %d is %s: the model is not kept",
                *(self.folder, metric, step, values[metric]),
            )
        if not self._selection.add(step, values):
            return
        record = {
            "metric": metric,
            "value": values[metric],
            "step": step,
            _EVALUATED_ON: self._evaluated_on,
        }
        if metric.startswith("ema_"):
            with self._averages.in_place():
                self._write(record)
        else:
            self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        self._train_step.mark_trained()
        names = folders.OWN_NAMES | {BEST_FILE}
        try:
            with folders.writing(self.folder, overwrite=True, own_names=names) as out:
                out.write_json(BEST_FILE, record)
                model = self._train_step.model
                write_files(from_model(model, self.tokenizer), out)
        except (OSError, DataError, UsageError) as e:
            # No reason to end a run; the next better model is written.
            logging.warning("%s: the model is not kept: %s", self.folder, e)


def _recorded(
    folder: str, metric: str, evaluated_on: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the evaluation on record, if it can be compared with those to come."""
    path = files.join(folder, BEST_FILE)
    if not (folders.is_complete(folder) and files.exists(path)):
        return []
    try:
        folders.verify(folder)
    except folders.DamagedError as e:
        logging.warning("%s; the next evaluation replaces it", e)
        return []
    record = files.read_json(path)
    if record.get("metric") != metric:
        return []
    # Earlier versions did not record all of it.
    before = {**evaluated_on, **record.get(_EVALUATED_ON, {})}
    if before != evaluated_on:
        logging.warning(
            "%s: was measured on other examples, %s, than --eval_file, "
            "--eval_batch_size, --max_eval_steps, --eval_masked_lm_prob and "
            "--eval_ngram now give, %s; the next evaluation replaces it",
            *(path, _describe(before), _describe(evaluated_on)),
        )
        return []
    return [{"step": record["step"], metric: record["value"]}]


def _describe(evaluated_on: Mapping[str, Any]) -> str:
    """Returns the examples of evaluations for people; of a digest, the beginning."""
    return " ".join(f"{k}={str(v)[:12]}" for k, v in evaluated_on.items())
