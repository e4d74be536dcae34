"""Measures fine-tuning side by side with transformers: same weights, same sentences.

Both train with AdamW in one precision (transformers in bfloat16 by autocast, as its
Trainer does), in turns of one step. Legend: `U` examples of a batch.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.objectives.finetuning import for_task
from albert_tf.optimizers.create import create_optimizer
from albert_tf.tasks.batches import (
    BatchShape,
    make_training_dataset,
    useful_token_rate,
)
from albert_tf.tasks.task import EncodedExamples
from albert_tf.tasks.text_classification import table_task, with_labels
from albert_tf.tasks.text_tables import LabelledTableSettings
from albert_tf.text import inputs
from albert_tf.text.load import load_tokenizer
from benchmarks import peer
from benchmarks.report import Row
from benchmarks.turns import seconds_in_turns

_RATE = 1e-5
_SEED = 12345


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurement.

    Attributes:
        input_file: str. Table with texts and labels, such as SST-2's train.tsv.
        spm_model_file: str. Tokenizer.
        columns: `LabelledTableSettings`. Columns of the table.
        preset: str. Size of the model; its weights are random.
        batch_size: int. `U`.
        max_seq_length: int. Tokens of the longest row.
        steps: int. Steps of every contestant.
        precision: str. "bfloat16" or "float32".
    """

    input_file: str
    spm_model_file: str
    columns: LabelledTableSettings
    preset: str = "albert_base_v2"
    batch_size: int = 32
    max_seq_length: int = 128
    steps: int = 12
    precision: str = "bfloat16"


def run(settings: Settings) -> list[Row]:
    """Trains in turns; returns sentences per second of every contestant.

    Raises:
        UsageError: If transformers or torch is not installed.
    """
    peer.require("finetune")
    encoded, pad_id, num_labels = _examples(settings)
    config = AlbertConfig.from_preset(settings.preset)
    policy = {"bfloat16": "mixed_bfloat16"}.get(settings.precision, settings.precision)
    model = AlbertTextClassifier(
        config, num_labels=num_labels, seed=_SEED, dtype=policy
    )
    shape = BatchShape(
        "text_classifier",
        settings.max_seq_length,
        config.max_position_embeddings,
        pad_id,
        packing=True,
    )
    padded = dataclasses.replace(shape, packing=False)
    contestants = {
        "albert_tf, packed": _ours(settings, model, encoded, shape),
        "transformers, padded to the longest of the batch": _theirs(
            settings, model, encoded, pad_id, _random_order
        ),
        "transformers, whole set sorted by length": _theirs(
            settings, model, encoded, pad_id, _sorted_order
        ),
    }
    seconds = seconds_in_turns(contestants, settings.steps)
    # All sentences by all seconds: lengths differ from batch to batch, and the median
    # of batches sorted by length would be the speed of short sentences.
    sentences = settings.batch_size * settings.steps
    rates = {name: sentences / sum(found) for name, found in seconds.items()}
    rows = [
        Row(
            name,
            rates[name],
            "sentences/s",
            details={"seconds": [round(one, 2) for one in found]},
        )
        for name, found in seconds.items()
    ]
    ours, *others = rates
    aims = ("at least 3.5", "at least 2")
    for name, aim in zip(others, aims, strict=True):
        rows.append(Row(f"{ours} / {name}", rates[ours] / rates[name], "", aim))
    for name, one in (("packed", shape), ("padded", padded)):
        rate = useful_token_rate(encoded, one, settings.batch_size, _SEED)
        rows.append(Row(f"share of non-padding tokens, {name}", rate, ""))
    return rows


def _examples(settings: Settings) -> tuple[EncodedExamples, int, int]:
    tokenizer = load_tokenizer(settings.spm_model_file)
    table = settings.columns.read_table(settings.input_file)
    task = with_labels(table_task(), table)
    task = task.with_options(max_seq_length=settings.max_seq_length)
    encoded = task.encode(table, tokenizer)
    return encoded, tokenizer.pad_id, max(1, len(task.labels))


def _ours(settings, model, encoded, shape) -> Callable[[], None]:
    """Returns a function that trains a step, as the command does."""
    import tensorflow as tf

    from albert_tf.training.tensorflow.step import TrainStep, distribute

    strategy = tf.distribute.get_strategy()
    optimizer = create_optimizer("adamw", learning_rate=_RATE, num_train_steps=10**6)
    objective = for_task("text_classifier")
    step = TrainStep(model, objective, optimizer, strategy, seed=_SEED)
    dataset = distribute(
        strategy,
        lambda n, i: make_training_dataset(
            encoded, shape, batch_size=settings.batch_size, seed=_SEED
        ),
    )
    iterator = iter(dataset)

    def train() -> None:
        float(step.train(iterator, 1)["loss_sum"])  # waits for the device

    return train


def _theirs(settings, model, encoded, pad_id, order) -> Callable[[], None]:
    """Returns a function that trains transformers' model a step."""
    theirs = peer.load(model, "AlbertForSequenceClassification")
    step = peer.make_step(theirs, _RATE, settings.precision)
    batches = order(settings, encoded)
    labels = encoded.targets[features.LABELS]

    def train() -> None:
        rows = next(batches)
        length = int(encoded.rows.lengths[rows].max())
        batch = inputs.padded_inputs(encoded.rows, rows, length, pad_id)
        step(
            {
                "input_ids": batch[features.TOKEN_IDS],
                "token_type_ids": batch[features.SEGMENT_IDS],
                "attention_mask": batch[features.PADDING_MASK],
                "labels": labels[rows],
            }
        )

    return train


def _random_order(settings: Settings, encoded: EncodedExamples) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(_SEED)
    while True:
        order = rng.permutation(len(encoded))
        for start in range(0, len(order) - settings.batch_size, settings.batch_size):
            yield order[start : start + settings.batch_size]


def _sorted_order(settings: Settings, encoded: EncodedExamples) -> Iterator[np.ndarray]:
    """Yields batches of equal lengths: two to warm up, then some of every length.

    They are evenly spaced in the sorted set, so that a few represent all of them.
    """
    order = np.argsort(encoded.rows.lengths, kind="stable")
    places = (np.arange(settings.steps) + 0.5) / settings.steps
    starts = (places * (len(order) - settings.batch_size)).astype(int)
    rng = np.random.default_rng(_SEED)
    for start in [starts[0], starts[-1], *rng.permutation(starts)]:
        yield order[start : start + settings.batch_size]
