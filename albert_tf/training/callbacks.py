"""Callbacks, which the training loop calls between its steps.

The state of a callback is a function of the metrics on record, or is kept in a file of
its own, so a resumed run continues like an uninterrupted one.
"""

import collections
import contextlib
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.converters import safetensors_file
from albert_tf.converters.checkpoint import Tensor
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.load import write_files
from albert_tf.errors import DataError, UsageError, require
from albert_tf.models.base import weight_names
from albert_tf.optimizers import loss_scale
from albert_tf.storage import files, folders
from albert_tf.text.inputs import encode_masked, masked_inputs
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.context import RunContext
from albert_tf.training.engine import is_tpu
from albert_tf.training.metrics_file import SAMPLES_FILE, MetricsFile
from albert_tf.training.run_folder import BEST_FOLDER
from albert_tf.training.weights import WeightAverages, mark_trained

# Number of answers to a masked sentence that are written.
_TOP_K = 5
# The usual value is the median of this many log lines; fewer than the second number
# are not enough to judge by.
_WINDOW = 20
_MINIMUM = 3
_MEASURES = {"loss": "loss", "grad_norm": "gradient norm"}


class Callback:
    """Does nothing; derived classes override the calls they need."""

    # Whether the run must end before the next call of the step.
    should_stop = False

    def on_step(self, done: int, results: Mapping[str, Any]) -> None:
        """Is called after every call of the step, in every worker; may raise an error.

        `DivergedError` ends the training. `done` is the number of updates made before
        this call, `results` the result of `TrainStep.train`.
        """

    def on_log(self, values: Mapping[str, Any]) -> None:
        """Is called with every line of training metrics that is recorded."""

    def on_evaluate(self, step: int, values: dict[str, Any]) -> None:
        """Is called after an evaluation, and may add to its values.

        The values are recorded afterwards: a run killed in between repeats both.
        """

    def on_save(self) -> None:
        """Is called after a checkpoint has been written."""

    def on_end(self) -> None:
        """Is called when training ends, whatever the reason."""


class DivergedError(DataError):
    """Training diverged at update `step`, counted from 1, with these `values`."""

    def __init__(self, message: str, step: int, values: Mapping[str, float]):
        super().__init__(message)
        self.step = step
        self.values = dict(values)


class DivergenceGuard(Callback):
    """Judges the loss and the gradient norm of every step.

    The usual value is the median of the last 20 log lines, from the third line on. It
    depends only on what is on record, so a resumed run decides alike. A loss or a norm
    above its multiple of the usual one is a divergence; 0 allows all finite ones.

    In float16, a gradient that is not finite does not count as a divergence while the
    loss scale can still be halved: the step was skipped. The scale does not affect the
    loss.
    """

    def __init__(
        self,
        lines: Iterable[Mapping[str, Any]] = (),
        *,
        max_loss_ratio: float = 0.0,
        max_norm_ratio: float = 0.0,
    ):
        self.ratios = {"loss": max_loss_ratio, "grad_norm": max_norm_ratio}
        self._usual = {n: collections.deque(maxlen=_WINDOW) for n in _MEASURES}
        for line in lines:
            if line.get("split") == "train":
                self.on_log(line)

    def on_log(self, values: Mapping[str, Any]) -> None:
        """Adds a log line of training to the usual values."""
        for name, usual in self._usual.items():
            if name in values:
                usual.append(values[name])

    def on_step(self, done: int, results: Mapping[str, Any]) -> None:
        """Judges the loss and the norm of each step of one call."""
        norms = results["grad_norms"]
        scales = results.get("loss_scales", [loss_scale.MINIMUM] * len(norms))
        pairs = zip(results["losses"], norms, strict=True)
        limits = {name: self._limit(name) for name in _MEASURES}
        for step, (pair, scale) in enumerate(zip(pairs, scales, strict=True), done + 1):
            values = {name: float(v) for name, v in zip(_MEASURES, pair, strict=True)}
            of = _not_finite(results)
            for name, title in _MEASURES.items():
                value, limit = values[name], limits[name]
                skipped = name == "grad_norm" and scale > loss_scale.MINIMUM
                if value <= limit if math.isfinite(value) else skipped:
                    continue
                text = f"the {title} is {value:g} at step {step}{of}"
                if math.isfinite(value):
                    usual = limit / self.ratios[name]
                    text += f", {value / usual:.1f} times the usual {usual:g}"
                rate = results["learning_rate"]
                other = ", or use another --precision" * ("loss_scales" in results)
                raise DivergedError(
                    f"{text} (learning rate {rate:g}): lower --learning_rate or "
                    f"lengthen --num_warmup_steps{other}",
                    step,
                    values,
                )

    def _limit(self, name: str) -> float:
        values, ratio = self._usual[name], self.ratios[name]
        if not ratio or len(values) < _MINIMUM:
            return math.inf
        return ratio * statistics.median(values)


def _not_finite(results: Mapping[str, Any]) -> str:
    """Names the losses that are not finite, as far as the sums show it."""
    ending = "_loss_sum"
    sums = {k.removesuffix("_sum"): v for k, v in results.items() if k.endswith(ending)}
    names = [name for name, value in sums.items() if not math.isfinite(value)]
    return f", of {' and '.join(names)}" if names and len(sums) > 1 else ""


# Last words of the names of metrics that improve as they fall.
_LOWER_IS_BETTER = frozenset({"loss", "mse"})


def lower_is_better(metric: str) -> bool:
    """Returns whether a metric, such as `mlm_loss`, improves as it falls."""
    return metric.rpartition("_")[2] in _LOWER_IS_BETTER


# Names, in a model folder, the evaluation that the model comes from.
BEST_FILE = "best.json"
_EVALUATED_ON = "evaluated_on"


class KeepBest(Callback):
    """Keeps the best state so far, and may end a run that no longer improves.

    All decisions follow from the metrics on record, so a resumed run decides like an
    uninterrupted one. An evaluation whose metric is not finite is never the best.
    Averages, if given, are kept instead of the weights.

    Args:
        path: str. Folder of what is kept; created when it is needed.
        patience: int. Number of evaluations without a better value after which to stop;
            0 for never.
    """

    def __init__(
        self,
        path: str,
        metric: str,
        averages: WeightAverages | None,
        patience: int = 0,
        writes: bool = True,
    ):
        self.path = path
        self.metric = metric
        self.patience = patience
        self.writes = writes
        self.best_step: int | None = None
        self.best_value = math.nan
        self._averages = averages
        self._last_step = -1
        self._waited = 0

    def resume(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Decides as after these evaluations on record, each with its `step`."""
        for line in lines:
            self._is_best(line["step"], float(line[self.metric]))

    @property
    def has_no_number(self) -> bool:
        """Whether the metric was not a finite number at any evaluation."""
        return self.best_step is None and self._last_step >= 0

    @property
    def should_stop(self) -> bool:
        """Whether too many evaluations have passed without an improvement."""
        return bool(self.patience) and self._waited >= self.patience

    def on_evaluate(self, step: int, values: Mapping[str, Any]) -> None:
        """Keeps the current state if this evaluation is the best so far."""
        if self._is_best(step, float(values[self.metric])) and self.writes:
            averages = self._averages
            with averages.in_place() if averages else contextlib.nullcontext():
                self.save(step)

    def _is_best(self, step: int, value: float) -> bool:
        """Returns whether a new evaluation is the best so far, and records it."""
        if step <= self._last_step:
            return False
        self._last_step = step
        gain = value - self.best_value
        if lower_is_better(self.metric):
            gain = -gain
        if math.isfinite(value) and (self.best_step is None or gain > 0):
            self.best_step, self.best_value, self._waited = step, value, 0
            return True
        self._waited += 1
        return False

    def save(self, step: int) -> None:
        """Writes the state to keep, completely or not at all."""
        raise NotImplementedError


class KeepWeights(KeepBest):
    """Keeps weights named by their step, and those that a resumed run needs."""

    def __init__(self, model: keras.Model, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._weights = weight_names(model)

    def save(self, step: int) -> None:
        """Writes the weights of a step, completely or not at all."""
        files.make_folder(self.path)
        tensors = {
            name: Tensor.of(name, keras.ops.convert_to_numpy(v.value))
            for name, v in self._weights.items()
        }
        with files.open_atomically(self._file(step)) as f:
            safetensors_file.write(f, tensors, {"format": "albert_tf"})

    def restore(self, step: int) -> None:
        """Loads the weights of a step, or raises `DataError` if none were kept."""
        path = self._file(step)
        if not files.exists(path):
            raise DataError(f"{path}: the weights of the best evaluation are missing")
        tensors = safetensors_file.read(path)
        for name, variable in self._weights.items():
            variable.assign(tensors[name].read())

    def on_save(self) -> None:
        """Removes weights that a run resumed from this checkpoint cannot need."""
        if not self.writes or not files.is_folder(self.path):
            return
        best = f"step-{self.best_step}.safetensors"
        for name in files.list_folder(self.path):
            if name.endswith(".safetensors") and name != best:
                files.remove(files.join(self.path, name))

    def _file(self, step: int) -> str:
        return files.join(self.path, f"step-{step}.safetensors")


class KeepModel(KeepBest):
    """Writes the model after each evaluation that is better than all before it.

    A file next to the model names the best evaluation so far, so a resumed run compares
    with it. An evaluation that a resumed run repeats changes nothing. Values measured
    on other examples, as described by `evaluated_on`, are not compared: the first
    evaluation on new examples is the best. If the metric begins with `ema_`, the
    averages are written.
    """

    def __init__(self, run: RunContext):
        path, metric = run.folder.join(BEST_FOLDER), run.settings.keep_best
        averages = run.averages if metric.startswith("ema_") else None
        super().__init__(path, metric, averages)
        self._run = run
        self._evaluated_on = run.data.evaluated_on()
        self.resume(_recorded(path, metric, self._evaluated_on))
        # An earlier step that is evaluated again may have other weights: a batch may
        # have been left out since.
        self._last_step = -1

    def on_evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the model if these metrics, which must have `metric`, are the best."""
        metric, has = self.metric, "the evaluation data has no such metric, only"
        require(metric in values, f"--keep_best={metric}: {has} {', '.join(values)}")
        if not math.isfinite(values[metric]):
            logging.warning(
                "%s: the %s of step %d is %s: the model is not kept",
                self.path,
                metric,
                step,
                values[metric],
            )
        super().on_evaluate(step, values)

    def save(self, step: int) -> None:
        """Writes the model and the evaluation it comes from."""
        record = {
            "metric": self.metric,
            "value": self.best_value,
            "step": step,
            _EVALUATED_ON: self._evaluated_on,
        }
        model = self._run.step.model
        mark_trained(model, self._run.step.optimizer)
        names = folders.OWN_NAMES | {BEST_FILE}
        try:
            with folders.writing(self.path, overwrite=True, own_names=names) as out:
                out.write_json(BEST_FILE, record)
                write_files(from_model(model, self._run.tokenizer), out)
        except (OSError, DataError, UsageError) as e:
            # Not a reason to end the run: the next better model is written.
            logging.warning("%s: the model is not kept: %s", self.path, e)


def _recorded(
    folder: str, metric: str, evaluated_on: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the evaluation on record, if new ones can be compared with it."""
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
    before = record.get(_EVALUATED_ON, {})
    if before != evaluated_on:
        logging.warning(
            "%s: was measured on other examples, %s, than --eval_file, "
            "--eval_batch_size, --max_eval_steps, --eval_masked_lm_prob and "
            "--eval_ngram now give, %s; the next evaluation replaces it",
            path,
            _describe(before),
            _describe(evaluated_on),
        )
        return []
    return [{"step": record["step"], metric: record["value"]}]


def _describe(evaluated_on: Mapping[str, Any]) -> str:
    """Describes the examples of evaluations for people; digests are shortened."""
    return " ".join(f"{k}={str(v)[:12]}" for k, v in evaluated_on.items())


# Which weights a line describes, in the words of --export_weights.
_LAST, _AVERAGE = "last", "average"


class Samples(Callback):
    """Writes `samples.jsonl`: one line per evaluation, and one for any averages.

    Does nothing without texts or held-out data, in workers other than the chief, and on
    a TPU, which would have to compile a second program for a few rows. Lines after
    `first_step`, where the run continues, are removed.
    """

    def __init__(self, run: RunContext, first_step: int):
        self._step = run.step
        self._averages = run.averages
        self._tokenizer = run.tokenizer
        self._texts: list[str] = []
        self._file: MetricsFile | None = None
        if run.helper:
            return
        if run.settings.eval_file and not is_tpu(run.strategy):
            self._read(run.settings.sample_texts, run.settings.max_seq_length)
        path = run.folder.join(SAMPLES_FILE)
        if self._texts or files.exists(path):
            self._file = MetricsFile(path, first_step)

    def _read(self, texts: Sequence[str], longest: int) -> None:
        """Makes the batch of texts, which all evaluations share, with one graph."""
        rows = []
        for text in filter(None, texts):
            try:
                row = encode_masked(self._tokenizer, text, longest, "--max_seq_length")
            except UsageError as e:
                logging.warning("--sample_texts: one is left out: %s", e)
            else:
                self._texts.append(text)
                rows.append(row)
        if not rows:
            return
        batch, self._masks = masked_inputs(self._tokenizer, rows, longest)
        # Each device must get an equal share of the rows.
        shares = self._step.num_shares
        number = -(-len(rows) // shares) * shares
        self._batch = {k: np.resize(v, (number, v.shape[1])) for k, v in batch.items()}

    def on_evaluate(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes the current answers, unless they are on record."""
        if not self._texts:
            return
        self._append(step, _LAST)
        if self._averages:
            with self._averages.in_place():
                self._append(step, _AVERAGE)

    def _append(self, step: int, weights: str) -> None:
        key = {"step": step, "weights": weights}
        # A resumed run may repeat an evaluation that is on record.
        if not any(key.items() <= line.items() for line in self._file.lines):
            self._file.append({**key, "answers": self._answers()})

    def _answers(self) -> list[dict[str, Any]]:
        """Returns the best tokens, with probabilities, for each mask of each text."""
        outputs = self._step.predict(self._batch)
        logits = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
        logits = logits.astype(np.float32)
        # A model's table may be larger than the vocabulary.
        logits = logits[..., : self._tokenizer.vocab_size]
        answers = []
        # The last rows may be repetitions that fill the batch.
        for text, masks, rows in zip(self._texts, self._masks, logits, strict=False):
            best = [_best_tokens(row, self._tokenizer) for row in rows[: len(masks)]]
            answers.append({"text": text, "masks": best})
        return answers

    def on_end(self) -> None:
        """Retries lines that could not be written."""
        if self._file:
            self._file.settle()


def _best_tokens(logits: np.ndarray, tokenizer: Tokenizer) -> list[list[Any]]:
    """Returns the most probable tokens with their probabilities, best first."""
    scores = np.exp(logits - logits.max())
    scores = scores / scores.sum()
    best = np.argsort(-scores, kind="stable")[:_TOP_K].tolist()
    return [[tokenizer.id_to_text(i), float(f"{scores[i]:.4g}")] for i in best]
