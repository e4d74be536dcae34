"""Measures the loss in a model's metric due to its conversion to another runtime."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.heads import HEADS, TAGS, VECTORS
from albert_tf.inference.forward import choices_in_rows
from albert_tf.inference.predictor import Predictor
from albert_tf.tasks.opening import DataSettings, read_labelled
from albert_tf.tasks.outputs import Forward
from albert_tf.text.tokenizer import Tokenizer

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def as_forward(run: Run, head: str) -> Forward:
    """Returns the function of batches that a `Predictor` calls.

    `run` takes and returns what `export.runtimes.TokensGraph` describes.
    """

    def forward(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = run(choices_in_rows(batch, head))
        if HEADS[head].answers == TAGS:
            logits = outputs["logits"]
            flat = logits.reshape(-1, logits.shape[-1])
            outputs = {"logits": flat[batch[features.PLACES]]}
        elif HEADS[head].answers == VECTORS:
            outputs = {"logits": outputs["embedding"][:, None]}
        return outputs

    return forward


def labelled_check(
    model: keras.Model,
    tokenizer: Tokenizer,
    data: DataSettings,
    *,
    eval_file: str,
    max_seq_length: int | None,
    max_drop: float,
) -> Callable[[Run], dict[str, Any]] | None:
    """Returns `accuracy_check` on the examples that settings name, or None.

    Raises `DataError` if there are no labelled examples.
    """
    if not (eval_file or data.data_dir):
        return None
    predictor = Predictor(
        model,
        tokenizer,
        task=data.task,
        max_seq_length=max_seq_length,
        on_bad_input=data.on_bad_input,
    )
    named = [s for s in predictor.task.splits if s.startswith("dev")]
    split = named[0] if data.data_dir and named else "dev"
    examples = read_labelled(predictor.task, data, split, eval_file)
    return lambda run: accuracy_check(predictor, examples, max_drop, run)


def accuracy_check(
    predictor: Predictor, examples: Any, max_drop: float, run: Run
) -> dict[str, Any]:
    """Compares a converted model with the predictor's model, before its conversion.

    Raises `DataError` if the metric by which fine-tuning selects models falls by more
    than `max_drop` points (hundredths). Returns its name, its values and the drop.
    """
    task, encoded = predictor.task, predictor.encoded(examples)
    names = task.metric_names(examples)
    name = task.selecting_metric
    name = name if name in names else names[0]
    before, after = (
        predictor.metrics(examples, predictor.answers(examples, encoded, one))[name]
        for one in (None, as_forward(run, predictor.head))
    )
    # Metrics of questions are already percentages.
    drop = (before - after) * (1.0 if HEADS[predictor.head].answers_spans else 100.0)
    expected = f"{examples.path}: {name} falls from {before:.4f} to {after:.4f}, by "
    expected += f"{drop:.2f} points; max_accuracy_drop is {max_drop:g}"
    require(drop <= max_drop, expected, error=DataError)
    return {
        "metric": name,
        "examples": len(examples),
        "before": before,
        "after": after,
        "drop_in_points": drop,
    }
