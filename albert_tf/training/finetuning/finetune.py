"""Fine-tuning a text classifier on a table, with plain `compile` and `fit`.

One device: `fit` trains wrongly under a `tf.distribute` strategy (docs/decisions.md).
On one device it is right, and dropout draws from the generators that the model's
`seed` started, so the same call gives the same weights.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.create import create_optimizer
from albert_tf.tasks import tables
from albert_tf.tasks.dataset import make_classification_dataset
from albert_tf.tasks.text_classification import evaluate
from albert_tf.text import inputs
from albert_tf.text.load import load_tokenizer
from albert_tf.training.finetuning import folder
from albert_tf.training.finetuning.settings import FinetuneSettings


def finetune_text_classifier(
    settings: FinetuneSettings, verbose: int | str = 2
) -> dict[str, Any]:
    """Trains on a table and writes a folder with the model and what was measured.

    The folder holds the model with labels and tokenizer (`from_pretrained` and
    `Classifier.from_pretrained` read it), `metrics.json`, `metrics.jsonl` (a line an
    epoch), `curves.png`, `predictions.tsv` of the dev table, `test_predictions.tsv`
    and `run.json` with the settings. It appears when all is done.

    Args:
        settings: `FinetuneSettings`.
        verbose: Of `fit`: 0 silent, 1 a bar, 2 a line an epoch.

    Returns:
        The content of `metrics.json`.

    Raises:
        UsageError: If a setting is impossible, or the folder exists.
        DataError: If a file is not what it must be.
    """
    settings.check_source()
    folder.check_free(settings.output_dir, settings.overwrite)
    train = _read(settings, settings.train_file)
    dev = _read(settings, settings.dev_file) if settings.dev_file else None
    test = _read(settings, settings.test_file, False) if settings.test_file else None
    settings = settings.resolved(len(train))
    labels = list(settings.labels) or tables.find_labels(train)
    label_ids = {"train": tables.label_ids(train, labels)}
    if dev is not None:
        label_ids["dev"] = tables.label_ids(dev, labels)
    tokenizer = _load_tokenizer(settings)
    model = _load_model(settings, labels)
    length = _max_seq_length(settings, model)
    settings = dataclasses.replace(settings, max_seq_length=length)
    packed = {
        name: inputs.encode_texts(
            tokenizer, table.texts, table.text_pairs, max_seq_length=length
        )
        for name, table in (("train", train), ("dev", dev), ("test", test))
        if table is not None
    }
    history = _fit(model, packed, label_ids, settings, length, tokenizer, verbose)
    results = {"num_train_steps": settings.num_train_steps, "max_seq_length": length}
    for name, rows in packed.items():
        results[f"{name}_examples"] = len(rows)
        results[f"{name}_truncated"] = rows.num_truncated
    results["labels"] = labels
    outputs = {}
    for name in packed.keys() - {"train"}:
        outputs[name] = _predict(model, packed[name], settings, length, tokenizer)
    if dev is not None:
        values = evaluate(outputs["dev"], dev, labels)
        results |= {f"dev_{name}": value for name, value in values.items()}
    folder.write(settings, model, tokenizer, labels, history, results, outputs, dev)
    return results


def _read(settings: FinetuneSettings, path: str, labelled: bool = True):
    return tables.read_table(
        path,
        text_column=settings.text_column,
        text_pair_column=settings.text_pair_column or None,
        label_column=settings.label_column if labelled else None,
        delimiter=settings.delimiter or None,
        header=settings.header,
        quoting=settings.quoting,
    )


def _load_tokenizer(settings: FinetuneSettings):
    if settings.spm_model_file:
        return load_tokenizer(settings.spm_model_file, settings.do_lower_case)
    return load.load_tokenizer(settings.init_checkpoint)


def _load_model(settings: FinetuneSettings, labels: list[str]) -> AlbertTextClassifier:
    """The classifier to train; a classifier for other labels is replaced."""
    changes = {}
    if settings.dropout is not None:
        changes["hidden_dropout_prob"] = settings.dropout
        changes["attention_probs_dropout_prob"] = settings.dropout
    sizes = {"num_labels": len(labels), "seed": settings.seed}
    if settings.from_scratch:
        if settings.preset:
            config = AlbertConfig.from_preset(settings.preset)
        else:
            config = AlbertConfig.from_json(settings.albert_config_file)
        return AlbertTextClassifier(config.replace(**changes), **sizes)
    path = settings.init_checkpoint
    with load.open_checkpoint(path) as checkpoint:
        config = checkpoint.config.replace(**changes)
        other_head = checkpoint.head == "text_classifier" and (
            list(checkpoint.labels or ()) != labels
        )
    if not other_head:
        model = load.from_pretrained(path, "text_classifier", config=config, **sizes)
        # Said when they were loaded; that they are to be trained now is no surprise.
        model.mark_untrained(())
        return model
    logging.info("%s: its classifier has other labels and is replaced", path)
    model = AlbertTextClassifier(config, **sizes)
    values = weight_names(load.from_pretrained(path, None, config=config))
    for name, variable in weight_names(model.backbone).items():
        variable.assign(values[name])
    return model


def _max_seq_length(settings: FinetuneSettings, model) -> int:
    longest = model.config.max_position_embeddings
    length = settings.max_seq_length
    if length is None or (settings.recipe and length > longest):
        length = min(512, longest)
    pairs = bool(settings.text_pair_column)
    inputs.check_max_seq_length(length, pairs=pairs, longest=longest)
    return length


def _fit(model, packed, label_ids, settings, length, tokenizer, verbose) -> list[dict]:
    """Trains `num_train_steps`; returns what was measured after each epoch."""
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
    # Its slots made here and not inside the first step, which would take seconds more.
    model.optimizer.build(model.trainable_variables)
    validation = None
    if "dev" in packed:
        validation = make_classification_dataset(
            packed["dev"],
            label_ids["dev"],
            batch_size=settings.eval_batch_size,
            **shape,
        )
    epoch_steps = min(math.ceil(len(packed["train"]) / batch_size), steps)
    epochs, rest = divmod(steps, epoch_steps)
    lines, done = [], 0
    # A last part of an epoch is a call of its own: `fit` knows whole epochs only.
    for count, size in ((epochs, epoch_steps), (1, rest)):
        if not size:
            continue
        dataset = make_classification_dataset(
            packed["train"],
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
            shuffle=False,  # The data set has its own order.
            validation_data=validation,
            verbose=verbose,
        ).history
        for i in range(count):
            done += size
            lines.append({"step": done, **{k: v[i] for k, v in history.items()}})
    if not all(np.isfinite(line["loss"]) for line in lines):
        raise UsageError(
            "the loss became infinite or not a number; learning_rate must be lower, "
            f"received {settings.learning_rate}"
        )
    return lines


def _predict(model, rows, settings, length, tokenizer) -> np.ndarray:
    """Logits `[N, C]`."""
    dataset = make_classification_dataset(
        rows,
        np.zeros(len(rows), np.int32),
        batch_size=settings.eval_batch_size,
        max_seq_length=length,
        pad_id=tokenizer.pad_id,
    )
    return model.predict(dataset, verbose=0)
