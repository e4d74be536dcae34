"""The batches of a pretraining run, and the batches skipped after a divergence.

The order of the batches is a function of the seed. A run that skips some uses the
others in the same order, so with the record a resumed run does the same.
"""

import functools
import itertools
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.batches.reader import data_errors
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.records import card
from albert_tf.errors import DataError, UsageError, require
from albert_tf.objectives.pretraining import Objective
from albert_tf.storage import files
from albert_tf.training import loop
from albert_tf.training.callbacks import DivergedError
from albert_tf.training.engine import EvaluationStep, distribute
from albert_tf.training.metrics_file import SKIPPED_FILE
from albert_tf.training.pretrain_inputs import card_paths
from albert_tf.training.pretrain_settings import Phase, PretrainSettings
from albert_tf.training.weights import WeightAverages

# More divergences after one checkpoint have another cause than single batches.
_MAX_FROM_ONE_STEP = 5


class SkippedBatches:
    """The batches that a run leaves out, numbered from 0 within each phase.

    Only a process that `writes` updates the record in the folder of the run.
    """

    def __init__(self, folder: str, phases: Sequence[Phase], writes: bool):
        self._path = files.join(folder, SKIPPED_FILE)
        self._phases = phases
        self._writes = writes
        self.entries: list[dict[str, Any]] = []
        if files.exists(self._path):
            self.entries = list(files.read_json(self._path)["skipped"])

    def phase_of(self, step: int) -> Phase:
        """Returns the phase of the update that follows `step` updates."""
        return next((p for p in self._phases if step < p.last_step), self._phases[-1])

    def batch_after(self, step: int) -> int:
        """Returns the index, in its phase, of the batch that follows `step` updates."""
        number = step - self.phase_of(step).first_step
        for batch in self._of_phase(step):
            number += batch <= number
        return number

    def _of_phase(self, step: int) -> list[int]:
        first = self.phase_of(step).first_step
        return sorted(e["batch"] for e in self.entries if e.get("phase", 0) == first)

    def name(self, error: DivergedError) -> str:
        """Names the batch of a divergence for people."""
        phase = self.phase_of(error.step - 1).first_step
        of_phase = f" of the phase from step {phase:,}" if phase else ""
        return f"batch {self.batch_after(error.step - 1):,}{of_phase}"

    def add(self, error: DivergedError, restored_step: int) -> dict[str, Any]:
        """Records that a divergence's batch is left out, and returns the JSON entry.

        Raises `DataError` if the run went back to the checkpoint of `restored_step` too
        often.
        """
        before = [e for e in self.entries if e["restored_step"] == restored_step]
        if len(before) >= _MAX_FROM_ONE_STEP:
            raise DataError(
                f"training diverged {len(before) + 1} times after step "
                f"{restored_step}, each time at another batch; the last time, {error}"
            ) from error
        entry = {
            "batch": self.batch_after(error.step - 1),
            "phase": self.phase_of(error.step - 1).first_step,
            "diverged_at": error.step,
            "restored_step": restored_step,
            **{k: v if math.isfinite(v) else None for k, v in error.values.items()},
        }
        self.entries.append(entry)
        if self._writes:
            # Write this first: a run killed from now on must leave the batch out, too.
            text = json.dumps({"skipped": self.entries}, indent=2) + "\n"
            files.write_text(self._path, text)
        return entry

    def leave_out(self, dataset: tf.data.Dataset, step: int) -> tf.data.Dataset:
        """Returns the batches that follow `step` updates, without the skipped ones."""
        first = self.batch_after(step)
        batches = [batch for batch in self._of_phase(step) if batch >= first]
        if not batches:
            return dataset
        left_out = tf.constant(sorted(set(batches)), tf.int64)
        remaining = dataset.enumerate(first).filter(
            lambda number, _: tf.reduce_all(number != left_out)
        )
        return remaining.map(lambda _, batch: batch)


# Settings that choose the masks, by the flag that names the records.
_MASKS = {
    "input_file": ("masking", "masked_lm_prob", "ngram"),
    "eval_file": ("eval_masked_lm_prob", "eval_ngram"),
}


class RunBatches:
    """Training and held-out batches of a run, from its settings.

    Args:
        tokenizer: `Tokenizer`. The one that the records were made with.
        replicas: int. Number of devices that share a batch.
        type_vocab_size: int. Number of segments of the model.
        trains: bool. Whether there is training; otherwise only evaluations.

    Attributes:
        phases: list of `Phase`. More than one if sequences grow longer.
        records: dict. `RecordSet` of the training by the length of its rows.
        keeps_masks: bool. Whether the training records already contain the masks.
        eval: callable. One pass over held-out examples, the same data set for the same
            `(source, num_pipelines, pipeline)`.

    Raises:
        UsageError: If the labels of the records belong to another objective, or they
            already have masks and a setting asks for others.
        DataError: If the records are damaged or do not match the settings.
    """

    def __init__(
        self,
        settings: PretrainSettings,
        objective: Objective,
        tokenizer,
        replicas: int,
        type_vocab_size: int,
        trains: bool = True,
    ):
        self.settings = settings
        self.objective = objective
        self.phases = settings.phases if trains else []
        masking = _masking(settings, settings.masked_lm_prob, settings.ngram)
        model = (objective, tokenizer, type_vocab_size)
        self._training: list[PretrainingData] = []
        self.records, summaries = {}, []
        for phase in self.phases:
            part, rows = phase.settings, phase.settings.train_batch_size
            data = _open(part, "input_file", masking, *model)
            need = (
                f"--input_file={part.input_file}: must have a batch of {rows} rows; "
                "make more records, or smaller batches"
            )
            require(data.num_rows >= rows, need, data.num_rows, error=DataError)
            self._training.append(data)
            self.records[part.max_seq_length] = data.records
            lasts = f"{part.max_seq_length} tokens until step {phase.last_step}"
            summaries.append(f"{lasts}: {data.summary}")
        self.keeps_masks = any(data.keeps_masks for data in self._training)
        self.summary = data.summary if len(summaries) == 1 else "; ".join(summaries)
        self._held_out: dict[str, PretrainingData] = {}  # by source, or ""
        # Once each, because TensorFlow never frees a data set's Python functions.
        self.eval = functools.cache(self._pass)
        # Every device must take the same number of rows.
        rows = max(settings.eval_batch_size, replicas)
        self._eval_batch_size = rows - rows % replicas
        if not settings.eval_file:
            return
        self._eval_masking = _eval_masking(settings)
        arguments = (settings, "eval_file", self._eval_masking, *model)
        data = _open(*arguments)
        self._held_out_records = data.records
        named = _sources_of(data.records.paths)
        self._held_out = {"": data}
        if any(named):
            self._held_out = {k: _open(*arguments, paths) for k, paths in named.items()}
        if self._eval_batch_size != settings.eval_batch_size:
            logging.warning(
                "--eval_batch_size=%d: evaluates batches of %d, a multiple of the %d "
                "devices",
                settings.eval_batch_size,
                self._eval_batch_size,
                replicas,
            )

    def train(
        self,
        step: int,
        skipped: SkippedBatches,
        num_pipelines: int = 1,
        pipeline: int = 0,
    ) -> tf.data.Dataset:
        """Returns a pipeline's batches of a phase without end, without skipped ones."""
        phase = skipped.phase_of(step)
        dataset = self._training[self.phases.index(phase)].batches(
            phase.settings.train_batch_size,
            start_step=skipped.batch_after(step),
            num_input_pipelines=num_pipelines,
            input_pipeline_id=pipeline,
        )
        return skipped.leave_out(dataset, step)

    def _pass(self, source: str, num_pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Returns one pass over one pipeline's held-out examples, from one source."""
        return self._held_out[source].batches(
            self._eval_batch_size,
            is_training=False,
            num_input_pipelines=num_pipelines,
            input_pipeline_id=pipeline,
        )

    def evaluated_on(self) -> dict[str, Any]:
        """Describes the held-out examples that evaluations use.

        Evaluations of one run with equal descriptions can be compared: everything else
        that decides how examples are cut and masked belongs to the identity of the run.
        """
        most = self.settings.max_eval_steps * self._eval_batch_size or math.inf
        return {
            "records": self._held_out_records.digest(),
            "rows": sum(min(data.num_rows, most) for data in self._held_out.values()),
            "masked_lm_prob": self._eval_masking.masked_lm_prob,
            "max_ngram": self._eval_masking.max_ngram,
        }

    def make_evaluate(
        self, step: EvaluationStep, averages: WeightAverages | None = None
    ) -> loop.Evaluate | None:
        """Returns a function that evaluates, if there is held-out data."""
        if not self._held_out:
            return None
        limit = self.settings.max_eval_steps
        with data_errors():
            passes = (self.eval(name, 1, 0) for name in self._held_out)
            batches = (
                itertools.islice(one.as_numpy_iterator(), limit or None)
                for one in passes
            )
            baselines = self.objective.baselines(itertools.chain.from_iterable(batches))

        held_out = {
            name: distribute(step.strategy, functools.partial(self.eval, name))
            for name in self._held_out
        }

        def measure():
            return loop.evaluate_batches(step, held_out, limit)

        def evaluate():
            values = {**measure(), **baselines}
            if averages:
                with averages.in_place():
                    values |= {f"ema_{k}": v for k, v in measure().items()}
            return values

        return evaluate


def _open(
    settings: PretrainSettings,
    flag: str,
    masking: MaskingConfig,
    objective: Objective,
    tokenizer,
    type_vocab_size: int,
    paths: Sequence[str] = (),
) -> PretrainingData:
    """Opens the records of a flag, or only `paths` of them, and checks their labels."""
    pattern = getattr(settings, flag)
    data = PretrainingData(
        paths or pattern,
        tokenizer=tokenizer,
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        masking=masking,
        seed=settings.seed,
        packing=settings.packing,
        sample_draws=objective.sample_draws,
        type_vocab_size=type_vocab_size,
    )
    if data.warning and not paths:
        logging.warning("--%s=%s: %s", flag, pattern, data.warning)
    policies = " or ".join(objective.pair_policies)
    for path in card_paths(data.records.paths):
        # Records without a card are not checked.
        policy = files.read_json(path).get("pair_policy")
        require(
            not policy or policy in objective.pair_policies,
            f"--objective={objective.name} requires records made with "
            f"--pair_policy={policies}; --{flag}={pattern} was made with "
            f"--pair_policy={policy} ({path})",
        )
    require(
        not (data.keeps_masks and objective.chooses_masks),
        f"--objective={objective.name} masks by --masking={settings.masking}, but "
        f"--{flag}={pattern} already contains masks; make the records with "
        "create_pretraining_data --masking=dynamic",
    )
    defaults = {**settings.defaults(), "masking": objective.name}
    for name in _MASKS[flag] if data.keeps_masks else ():
        value = getattr(settings, name)
        require(
            value == defaults[name],
            f"--{name}={value}: --{flag}={pattern} already contains masks, which are "
            f"used as they are; leave --{name} out, or make the records with "
            "create_pretraining_data --masking=dynamic",
        )
    return data


def _sources_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """Returns the files of each named source; files without one are under ""."""
    names = {}
    for path in card_paths(paths):
        folder = os.path.dirname(path)
        for source, shards in card.shards_of_sources(files.read_json(path)).items():
            names |= {os.path.join(folder, shard): source for shard in shards}
    sources: dict[str, list[str]] = {}
    for path in paths:
        sources.setdefault(names.get(path, ""), []).append(path)
    return sources


def _masking(settings: PretrainSettings, prob: float, ngram: int) -> MaskingConfig:
    return MaskingConfig.from_preset(
        settings.masking,
        masked_lm_prob=prob,
        **({"max_ngram": ngram} if settings.masking == "albert" else {}),
    )


def _eval_masking(settings: PretrainSettings) -> MaskingConfig:
    """Returns the masking of evaluations: as in training, except for its settings."""
    prob, ngram = settings.eval_masked_lm_prob, settings.eval_ngram
    need = f"--eval_ngram={ngram} requires --masking=albert"
    require(ngram is None or settings.masking == "albert", need, settings.masking)
    prob = settings.masked_lm_prob if prob is None else prob
    ngram = settings.ngram if ngram is None else ngram
    try:
        return _masking(settings, prob, ngram)
    except UsageError as e:
        flags = f"--eval_masked_lm_prob={prob}, --eval_ngram={ngram}"
        raise UsageError(f"{flags}: {e}") from None
