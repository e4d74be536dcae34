"""The batches of a pretraining run, checked against its objective."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.batches.pretraining import PretrainingData, data_errors
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.records import card, shards
from albert_tf.errors import DataError, UsageError
from albert_tf.objectives.objective import Objective
from albert_tf.storage import files
from albert_tf.training import loop
from albert_tf.training.pretraining.lengths import Phase, phases_of
from albert_tf.training.pretraining.rollback import SkippedBatches
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.tensorflow.averages import WeightAverages
from albert_tf.training.tensorflow.step import TrainStep, distribute

_TRAINING_MASKS = ("masking", "masked_lm_prob", "ngram")
_EVAL_MASKS = ("eval_masked_lm_prob", "eval_ngram")


class RunBatches:
    """Training and held-out batches of a run, from its settings.

    Args:
        settings: `PretrainSettings`.
        objective: `Objective`. Learns the labels of the records.
        tokenizer: `Tokenizer`. The one that the records were made with.
        replicas: int. Number of devices that share a batch.

    Attributes:
        phases: list of `Phase`. More than one if sequences grow longer.
        records: `RecordSet`. The training records, those of the longest sequences.
        more_records: dict. The other ones, by their length.
        summary: str. Number of examples, for people.
        keeps_masks: bool. Whether the masks are those in the training records.

    Raises:
        UsageError: If the labels of the records belong to another objective, or
            they have masks already and a setting asks for others.
        DataError: If the records are damaged or do not match the settings.
    """

    def __init__(
        self,
        settings: PretrainSettings,
        objective: Objective,
        tokenizer,
        replicas: int,
    ):
        self.settings = settings
        self.objective = objective
        self.tokenizer = tokenizer
        common: dict[str, Any] = {
            "tokenizer": tokenizer,
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": settings.max_predictions_per_seq,
            "masking": _masking(settings, settings.masked_lm_prob, settings.ngram),
            "seed": settings.seed,
            "packing": settings.packing,
        }
        self.phases = phases_of(settings)
        self._training = [_open(phase, common, objective) for phase in self.phases]
        self.keeps_masks = any(data.keeps_masks for data in self._training)
        self._held_out = None
        if settings.eval_file:
            masking = _eval_masking(settings)
            common["masking"] = masking
            self._eval_masks = {
                "masked_lm_prob": masking.masked_lm_prob,
                "max_ngram": masking.max_ngram,
            }
            self._held_out = PretrainingData(settings.eval_file, **common)
            if self._held_out.keeps_masks:
                _check_masks(settings, "eval_file", _EVAL_MASKS)
            check_pair_policy("eval_file", settings.eval_file, objective)
        # Every device takes the same number of rows.
        rows = max(settings.eval_batch_size, replicas)
        self._eval_batch_size = rows - rows % replicas
        if self._held_out and self._eval_batch_size != settings.eval_batch_size:
            logging.warning(
                "--eval_batch_size=%d: evaluates batches of %d, a multiple of the %d "
                "devices",
                settings.eval_batch_size,
                self._eval_batch_size,
                replicas,
            )
        self.records = self._training[-1].records
        self.more_records = {
            phase.settings.max_seq_length: data.records
            for phase, data in zip(self.phases, self._training, strict=True)
        }
        del self.more_records[settings.max_seq_length]
        self.summary = self._training[-1].summary
        if len(self.phases) > 1:
            self.summary = "; ".join(
                f"{phase.settings.max_seq_length} tokens until step "
                f"{phase.last_step}: {data.summary}"
                for phase, data in zip(self.phases, self._training, strict=True)
            )

    def phase_of(self, step: int) -> Phase:
        """Returns the phase that the update after `step` updates belongs to."""
        return next((p for p in self.phases if step < p.last_step), self.phases[-1])

    def train(
        self,
        start_step: int,
        num_pipelines: int = 1,
        pipeline: int = 0,
        skipped: SkippedBatches | None = None,
    ) -> tf.data.Dataset:
        """Returns the training batches of one input pipeline, from a step on.

        They are those of the step's phase, without end and without those skipped.
        """
        phase = self.phase_of(start_step)
        number = start_step - phase.first_step
        if skipped:
            number = skipped.batch_after(start_step, phase.first_step)
        dataset = self._training[self.phases.index(phase)].batches(
            phase.settings.train_batch_size,
            start_step=number,
            num_input_pipelines=num_pipelines,
            input_pipeline_id=pipeline,
        )
        if skipped:
            dataset = skipped.leave_out(dataset, number, phase.first_step)
        return dataset

    def eval(self, num_pipelines: int = 1, pipeline: int = 0) -> tf.data.Dataset:
        """Returns one pass over the held-out examples of one input pipeline."""
        return self._held_out.batches(
            self._eval_batch_size,
            is_training=False,
            num_input_pipelines=num_pipelines,
            input_pipeline_id=pipeline,
        )

    def evaluated_on(self) -> dict[str, Any]:
        """Returns what distinguishes the held-out examples that evaluations use.

        Evaluations of one run with equal descriptions can be compared: all else that
        decides how examples are cut and masked is part of the identity of the run.
        """
        rows = self._held_out.num_rows
        if self.settings.max_eval_steps:
            rows = min(rows, self.settings.max_eval_steps * self._eval_batch_size)
        digest = self._held_out.records.digest()
        return {"records": digest, "rows": rows, **self._eval_masks}

    def make_evaluate(
        self,
        step: TrainStep,
        strategy: tf.distribute.Strategy,
        averages: WeightAverages,
    ) -> Callable[[], dict[str, float]] | None:
        """Returns a function that evaluates, or None without held-out data.

        Its metrics of the averages, if there are any, begin with `ema_`.
        """
        if not self._held_out:
            return None
        limit = self.settings.max_eval_steps
        with data_errors():
            batches = self.eval().as_numpy_iterator()
            baselines = self.objective.baselines(batches, limit)

        # Made once: TensorFlow keeps the Python functions of every data set for ever.
        held_out = distribute(strategy, self.eval)

        def measure():
            return loop.evaluate_batches(step, held_out, limit)

        def evaluate():
            values = {**measure(), **baselines}
            if averages:
                with averages.in_place():
                    values |= {f"ema_{k}": v for k, v in measure().items()}
            return values

        return evaluate


def _open(phase: Phase, common: dict[str, Any], objective) -> PretrainingData:
    """Opens the training data of a phase."""
    settings = phase.settings
    lengths = {
        "max_seq_length": settings.max_seq_length,
        "max_predictions_per_seq": settings.max_predictions_per_seq,
    }
    data = PretrainingData(settings.input_file, **{**common, **lengths})
    check_pair_policy("input_file", settings.input_file, objective)
    if data.num_rows < settings.train_batch_size:
        raise DataError(
            f"--input_file={settings.input_file}: expected at least one batch of "
            f"{settings.train_batch_size} rows, received {data.num_rows}; make more "
            "records, or smaller batches"
        )
    if data.keeps_masks:
        _check_masks(settings, "input_file", _TRAINING_MASKS)
    return data


def _masking(settings: PretrainSettings, prob: float, ngram: int) -> MaskingConfig:
    return MaskingConfig.from_preset(
        settings.masking,
        masked_lm_prob=prob,
        **({"max_ngram": ngram} if settings.masking == "albert" else {}),
    )


def _eval_masking(settings: PretrainSettings) -> MaskingConfig:
    """Returns what an evaluation masks: what training does, but for its settings."""
    prob, ngram = settings.eval_masked_lm_prob, settings.eval_ngram
    if ngram is not None and settings.masking != "albert":
        raise UsageError(
            f"--eval_ngram requires --masking=albert, received {ngram} with "
            f"{settings.masking}"
        )
    prob = settings.masked_lm_prob if prob is None else prob
    ngram = settings.ngram if ngram is None else ngram
    try:
        return _masking(settings, prob, ngram)
    except UsageError as e:
        raise UsageError(
            f"--eval_masked_lm_prob={prob}, --eval_ngram={ngram}: {e}"
        ) from None


def _check_masks(settings: PretrainSettings, flag: str, names: Sequence[str]) -> None:
    """Raises UsageError if a setting asks for masks other than the records have."""
    defaults = settings.defaults()
    for name in names:
        value = getattr(settings, name)
        if value != defaults[name]:
            raise UsageError(
                f"--{name}={value}: --{flag}={getattr(settings, flag)} already "
                f"contains masks, which are used as they are; leave --{name} out, or "
                "make the records with create_pretraining_data --masking=dynamic"
            )


def check_pair_policy(flag: str, pattern: str, objective: Objective) -> None:
    """Checks that the labels of records mean what an objective learns.

    What they mean is recorded in the data card; records without one are not checked.

    Args:
        flag: str. Name of the flag that holds the pattern.
        pattern: str. Records, as for `PretrainingData`, which has read their card.
        objective: `Objective`.

    Raises:
        UsageError: If the card names a pair policy that the objective cannot learn.
    """
    folders = {os.path.dirname(path) for path in shards.find_shards(pattern)}
    for folder in sorted(folders):
        path = files.join(folder, card.CARD_NAME)
        if not files.exists(path):
            continue
        policy = json.loads(files.read_text(path)).get("pair_policy")
        if policy and policy not in objective.pair_policies:
            raise UsageError(
                f"--objective={objective.name} requires records made with "
                f"--pair_policy={' or '.join(objective.pair_policies)}; "
                f"--{flag}={pattern} was made with --pair_policy={policy} ({path})"
            )
