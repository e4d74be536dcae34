"""Fine-tunes a text classifier on a table, with plain `compile` and `fit`.

Only one device is supported: under a `tf.distribute` strategy, `fit` trains incorrectly
(docs/decisions.md). On one device, dropout draws from generators that the model's
`seed` initializes, so the same call gives the same weights.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import load
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.checkpoint.choose_tokenizer import choose_tokenizer
from albert_tf.converters.checkpoint.keras_model import build_model
from albert_tf.errors import UsageError
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.create import create_optimizer
from albert_tf.tasks import tables
from albert_tf.tasks.dataset import make_classification_dataset
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_classification import evaluate, with_labels
from albert_tf.text import inputs
from albert_tf.text.load import load_tokenizer, warn_if_small
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.finetuning import folder
from albert_tf.training.finetuning.settings import FinetuneSettings


def finetune_text_classifier(
    settings: FinetuneSettings, verbose: int | str = 2
) -> dict[str, Any]:
    """Trains on a table and writes a folder with the model and its measurements.

    The folder holds the model with labels and tokenizer (`from_pretrained` and
    `Classifier.from_pretrained` read it), `metrics.json`, `metrics.jsonl` (one line per
    epoch), `curves.png`, `predictions.tsv` of the dev table, `test_predictions.tsv`
    and `run.json` with the settings. It appears only when everything is written.

    Args:
        settings: `FinetuneSettings`. The run.
        verbose: int or str. As in Keras's `fit`: 0 is silent, 1 shows a progress bar,
            2 prints one line per epoch.

    Returns:
        The content of `metrics.json`.

    Raises:
        UsageError: If a setting is invalid, or the folder exists or cannot be written.
        DataError: If an input file is invalid.
    """
    settings.check_source()
    folder.check_free(settings.output_dir, settings.overwrite)
    folder.check_writable(settings.output_dir)
    task = settings.make_task()
    examples = {name: source.read() for name, source in task.splits.items()}
    settings = settings.resolved(len(examples["train"]))
    task = with_labels(task, examples["train"], settings.many_labels)
    label_ids = {
        name: tables.label_ids(table, task.labels)
        for name, table in examples.items()
        if table.labels is not None
    }
    model, tokenizer = _load(settings, task)
    _check_vocabulary(model, tokenizer)
    length = _max_seq_length(settings, model)
    # Saved with the model: evaluation and serving use the same length by default.
    model.max_seq_length = length
    settings = dataclasses.replace(settings, max_seq_length=length)
    encoded = {
        name: inputs.encode_texts(
            tokenizer, table.texts, table.text_pairs, max_seq_length=length
        )
        for name, table in examples.items()
    }
    history = _fit(model, encoded, label_ids, settings, length, tokenizer, verbose)
    outputs = {
        name: _predict(model, rows, settings, length, tokenizer)
        for name, rows in encoded.items()
        if name != "train"
    }
    results = _results(settings, task, encoded)
    if "dev" in outputs:
        values = evaluate(task, outputs["dev"], examples["dev"])
        results |= {f"dev_{name}": value for name, value in values.items()}
    run = folder.Run(settings, task, model, tokenizer, history, results)
    folder.write(run, outputs, examples)
    return results


def _results(settings: FinetuneSettings, task: Task, encoded: dict) -> dict[str, Any]:
    """Returns what `metrics.json` says about the run itself."""
    results: dict[str, Any] = {
        "num_train_steps": settings.num_train_steps,
        "max_seq_length": settings.max_seq_length,
    }
    for name, rows in encoded.items():
        results[f"{name}_examples"] = len(rows)
        results[f"{name}_truncated"] = rows.num_truncated
    return results | {"labels": list(task.labels)}


def _load(
    settings: FinetuneSettings, task: Task
) -> tuple[AlbertTextClassifier, Tokenizer]:
    """Returns the classifier to train and its tokenizer; opens the checkpoint once."""
    changes = {}
    if settings.dropout is not None:
        changes["hidden_dropout_prob"] = settings.dropout
        changes["attention_probs_dropout_prob"] = settings.dropout
    normalization = (settings.do_lower_case, settings.keep_accents)
    count = len(task.labels)
    if settings.from_scratch:
        if settings.preset:
            config = AlbertConfig.from_preset(settings.preset)
        else:
            config = AlbertConfig.from_json(settings.albert_config_file)
        config = config.replace(**changes)
        tokenizer = load_tokenizer(settings.spm_model_file, *normalization)
        warn_if_small(tokenizer, config.vocab_size)
        model = AlbertTextClassifier(config, num_labels=count, seed=settings.seed)
        return model, tokenizer
    with load.open_checkpoint(settings.init_checkpoint) as checkpoint:
        checkpoint.check_unknown(with_heads=False)
        tokenizer = choose_tokenizer(
            checkpoint, settings.spm_model_file or None, *normalization
        )
        checkpoint.config = checkpoint.config.replace(**changes)
        if checkpoint.head == task.head and (
            tuple(checkpoint.labels or ()) != task.labels
        ):
            logging.info(
                "%s: its classifier has other labels and is replaced", checkpoint.path
            )
            _remove_classifier(checkpoint)
        model = build_model(checkpoint, task.head, count, settings.seed)
    # `build_model` has reported them; that they are about to be trained is expected.
    model.mark_untrained(())
    return model, tokenizer


def _check_vocabulary(model: AlbertTextClassifier, tokenizer: Tokenizer) -> None:
    if tokenizer.vocab_size > model.config.vocab_size:
        raise UsageError(
            f"spm_model_file: expected at most vocab_size={model.config.vocab_size} "
            f"tokens, as the model has, received {tokenizer.vocab_size}"
        )


def _remove_classifier(checkpoint: Checkpoint) -> None:
    """Leaves the encoder of a classifier, so that a new head is built on it."""
    checkpoint.tensors = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if not name.startswith("classifier/")
    }
    checkpoint.head = checkpoint.labels = None


def _max_seq_length(settings: FinetuneSettings, model) -> int:
    longest = model.config.max_position_embeddings
    length = settings.max_seq_length
    if length is None or (settings.recipe and length > longest):
        length = min(512, longest)
    pairs = bool(settings.text_pair_column)
    inputs.check_max_seq_length(length, pairs=pairs, longest=longest)
    return length


def _fit(model, encoded, label_ids, settings, length, tokenizer, verbose) -> list[dict]:
    """Trains for `num_train_steps`; returns the measurements after each epoch."""
    shape = {"max_seq_length": length, "pad_id": tokenizer.pad_id}
    steps, batch_size = settings.num_train_steps, settings.train_batch_size
    model.compile(
        optimizer=create_optimizer(
            settings.optimizer,
            learning_rate=settings.learning_rate,
            num_train_steps=steps,
            num_warmup_steps=settings.num_warmup_steps,
            weight_decay_rate=settings.weight_decay_rate,
            clip_norm=settings.clip_norm,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=settings.jit_compile,
    )
    # Creates the slots now; inside the first step it would take seconds longer.
    model.optimizer.build(model.trainable_variables)
    validation = None
    if "dev" in encoded:
        validation = make_classification_dataset(
            encoded["dev"],
            label_ids["dev"],
            batch_size=settings.eval_batch_size,
            **shape,
        )
    epoch_steps = min(math.ceil(len(encoded["train"]) / batch_size), steps)
    epochs, rest = divmod(steps, epoch_steps)
    lines, done = [], 0
    # `fit` runs whole epochs only, so an incomplete last epoch is a call of its own.
    for count, size in ((epochs, epoch_steps), (1, rest)):
        if not size:
            continue
        dataset = make_classification_dataset(
            encoded["train"],
            label_ids["train"],
            batch_size=batch_size,
            shuffle_seed=settings.seed,
            start_step=done,
            bucketed=not settings.fixed_length,
            **shape,
        )
        history = model.fit(
            dataset,
            steps_per_epoch=size,
            epochs=count,
            shuffle=False,  # The data set is shuffled already.
            validation_data=validation,
            verbose=verbose,
        ).history
        for i in range(count):
            done += size
            lines.append({"step": done, **{k: v[i] for k, v in history.items()}})
    if not all(np.isfinite(line["loss"]) for line in lines):
        raise UsageError(
            "learning_rate: the loss became infinite or NaN; expected a lower value, "
            f"received {settings.learning_rate}"
        )
    return lines


def _predict(model, rows, settings, length, tokenizer) -> np.ndarray:
    """Returns logits `[N, C]`."""
    dataset = make_classification_dataset(
        rows,
        np.zeros(len(rows), np.int32),
        batch_size=settings.eval_batch_size,
        max_seq_length=length,
        pad_id=tokenizer.pad_id,
    )
    return model.predict(dataset, verbose=0)
