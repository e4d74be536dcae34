"""What the model of a run answers to a few masked sentences, at each evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.errors import UsageError
from albert_tf.reports.metrics_file import SAMPLES_FILE, MetricsFile
from albert_tf.storage import files
from albert_tf.text.inputs import encode_masked, masked_inputs
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.callbacks import Callback
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from albert_tf.training.tensorflow.step import TrainStep
from albert_tf.training.tensorflow.strategy import helper_name

_TOP_K = 5
# The weights that a line is of, in the words of --export_weights.
_LAST, _AVERAGE = "last", "average"


class Samples(Callback):
    """Writes `samples.jsonl`: one line per evaluation, with averages one more.

    Does nothing without texts or held-out data, in workers other than the chief, and on
    a TPU, which would have to compile a second program for a few rows.

    Args:
        path: str. Folder of the run.
        first_step: int. Step at which the run continues. Later lines are removed.
        settings, step, averages, tokenizer: Those of the run, whose model answers.
    """

    def __init__(
        self,
        path: str,
        first_step: int,
        settings: Any,
        step: TrainStep,
        averages: WeightAverages,
        tokenizer: Tokenizer,
    ):
        self._step = step
        self._averages = averages
        self._tokenizer = tokenizer
        self._texts: list[str] = []
        self._file: MetricsFile | None = None
        if helper_name(step.strategy):
            return
        if settings.eval_file and not isinstance(
            step.strategy, tf.distribute.TPUStrategy
        ):
            self._read(settings.sample_texts, settings.max_seq_length)
        path = files.join(path, SAMPLES_FILE)
        if self._texts or files.exists(path):
            self._file = MetricsFile(path, first_step)

    def _read(self, texts: Sequence[str], longest: int) -> None:
        """Makes the batch of the texts; all evaluations share it, and one graph."""
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
        # An equal share for each device.
        shares = self._step.num_shares
        number = -(-len(rows) // shares) * shares
        self._batch = {k: np.resize(v, (number, v.shape[1])) for k, v in batch.items()}

    def on_evaluate(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes the answers of now, unless they are on record."""
        if not self._texts:
            return
        self._append(step, _LAST)
        if self._averages:
            with self._averages.in_place():
                self._append(step, _AVERAGE)

    def _append(self, step: int, weights: str) -> None:
        key = {"step": step, "weights": weights}
        # An evaluation that a resumed run repeats.
        if not any(key.items() <= line.items() for line in self._file.lines):
            self._file.append({**key, "answers": self._answers()})

    def _answers(self) -> list[dict[str, Any]]:
        """Returns of each text, for each mask, the best tokens and probabilities."""
        logits = self._step.predict(self._batch)["mlm_logits"].astype(np.float32)
        # A model's table may be larger than the vocabulary.
        logits = logits[..., : self._tokenizer.vocab_size]
        answers = []
        # The last rows may be repetitions.
        for text, masks, rows in zip(self._texts, self._masks, logits, strict=False):
            best = [self._best(row) for row in rows[: len(masks)]]
            answers.append({"text": text, "masks": best})
        return answers

    def _best(self, logits: np.ndarray) -> list[list[Any]]:
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
        best = np.argsort(-scores, kind="stable")[:_TOP_K].tolist()
        return [
            [self._tokenizer.id_to_text(i), float(f"{scores[i]:.4g}")] for i in best
        ]

    def on_end(self) -> None:
        """Writes again what could not be written."""
        if self._file:
            self._file.settle()
