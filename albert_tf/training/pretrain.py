"""A pretraining run, from its settings to a folder with a model."""

import contextlib

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters.keras_model import build_model
from albert_tf.converters.load import open_checkpoint, save_pretrained
from albert_tf.converters.table import GROWABLE, differences, grow
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import find as find_head
from albert_tf.objectives.objective import Objective
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.optimizers.create import create_optimizer
from albert_tf.storage import files, folders
from albert_tf.text.load import warn_if_small
from albert_tf.training import outputs
from albert_tf.training import pretrain_inputs as limits
from albert_tf.training.callbacks import BEST_FOLDER, check_metric
from albert_tf.training.pretrain_batches import RunBatches
from albert_tf.training.pretrain_inputs import (
    check_sizes,
    content_of,
    load_config,
    load_run_tokenizer,
)
from albert_tf.training.pretrain_settings import (
    CONTENT_OF,
    FOLLOWS,
    PretrainSettings,
    phases_of,
)
from albert_tf.training.run import CHECKPOINT_FOLDER, train
from albert_tf.training.run_folder import (
    FINISHED,
    RunFolder,
    describe_command,
    held,
    tidy_finished,
)
from albert_tf.training.tensorflow.checkpoints import latest_step
from albert_tf.training.tensorflow.step import TrainStep
from albert_tf.training.tensorflow.strategy import (
    check_agreement,
    create_strategy,
    helper_name,
    worker_errors,
)

MODEL_FOLDER = "model"
_FOLDERS = (CHECKPOINT_FOLDER, BEST_FOLDER, MODEL_FOLDER)


def pretrain(settings: PretrainSettings) -> str:
    """Pretrains a model, or continues where the same command was stopped.

    With `settings.deterministic`, the default, TensorFlow's operations are
    deterministic from then on in the whole process: TensorFlow cannot go back.

    Args:
        settings: `PretrainSettings`.

    Returns:
        str. Folder of the trained model, `<output_dir>/model`.

    Raises:
        UsageError: If a setting, or the output folder, cannot be used.
        DataError: If an input file is invalid, or the training diverges.
    """
    objective = _find_objective(settings)
    strategy = create_strategy(
        settings.distribution,
        num_devices=settings.num_devices,
        tpu_name=settings.tpu_name,
        worker_timeout=settings.worker_timeout,
    )
    with worker_errors(strategy):
        local = {*CONTENT_OF, "output_dir", "eval_file"}
        check_agreement(strategy, describe_command(settings, local))
        return _pretrain(settings, objective, strategy)


def _pretrain(
    settings: PretrainSettings, objective: Objective, strategy: tf.distribute.Strategy
) -> str:
    replicas = strategy.num_replicas_in_sync
    folder = RunFolder(
        settings.output_dir,
        settings.identity(),
        settings.defaults(),
        CONTENT_OF,
        {"num_train_steps": settings.change_num_train_steps},
        follows=FOLLOWS,
    )
    model_folder = folder.join(MODEL_FOLDER)
    with _open_start(settings.init_checkpoint) as start:
        config = load_config(settings, start)
        tokenizer = load_run_tokenizer(settings)
        _check_sizes(settings, config, tokenizer, strategy)
        if start is None:
            warn_if_small(tokenizer, config.vocab_size)
        else:
            choose_tokenizer(start, tokenizer)  # refuses that of other weights
            folder.origin = start.origin
        data = RunBatches(settings, objective, tokenizer, replicas)
        folder.check_content(
            content_of(config, tokenizer, data.records, start, data.more_records)
        )
        finished = _is_finished(folder, is_chief=not helper_name(strategy))
        held_out = data.evaluated_on() if settings.eval_file else None
        facts = {"held-out data": held_out, FINISHED: finished}
        check_agreement(strategy, {**folder.content, **facts})
        if finished:
            return model_folder
        folder.check_versions(settings.allow_other_versions)
        if settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        _check_length(settings, folder)
        step = _make_step(settings, config, objective, strategy, start)
    # Nothing is written before all inputs are known to be valid.
    if helper_name(strategy):
        train(settings, folder, data, step, strategy)
        return model_folder
    files.make_folder(folder.path)
    with held(folder.path, *_FOLDERS):
        folder.begin()
        _store_tokenizer(folder, tokenizer)
        with outputs.report_of_a_stopped_run(folder):
            train(settings, folder, data, step, strategy)
        outputs.write_outputs(
            folder, settings, config, objective, tokenizer, data.keeps_masks
        )
        step.mark_trained()
        save_pretrained(
            step.model,
            model_folder,
            tokenizer=tokenizer,
            overwrite=True,  # one that `held` has put back is not that of this run
        )
        folders.restore(folder.join(BEST_FOLDER))  # its upload may have failed
        folder.finish()
    return model_folder


def _is_finished(folder: RunFolder, is_chief: bool) -> bool:
    """Returns whether the model of the run is there, and whole.

    Raises:
        DataError: If it is damaged and there is no checkpoint to make it from.
    """
    model = folder.join(MODEL_FOLDER)
    if folder.model_is_outdated or not folders.is_complete(model):
        return False
    if is_chief:
        tidy_finished(folder.path, *_FOLDERS)
    try:
        folders.verify(model)
    except folders.DamagedError as e:
        if latest_step(folder.join(CHECKPOINT_FOLDER)) is None:
            raise DataError(
                f"{e}; no checkpoint is left to make the model from; another "
                "--output_dir begins anew"
            ) from None
        logging.warning("%s; the model is made again from the last checkpoint", e)
        folder.model_is_outdated = True
        return False
    return True


def _find_objective(settings: PretrainSettings) -> Objective:
    name = settings.objective
    if name not in OBJECTIVES:
        raise UsageError(
            f"--objective must be one of {', '.join(OBJECTIVES)}, received {name!r}"
        )
    if settings.keep_best:
        with_averages = bool(settings.ema_decay)
        check_metric(settings.keep_best, OBJECTIVES[name], with_averages)
    return OBJECTIVES[name].with_pair_weight(settings.pair_loss_weight)


def _check_length(settings: PretrainSettings, folder: RunFolder) -> None:
    reached = latest_step(folder.join(CHECKPOINT_FOLDER)) or 0
    if reached > settings.num_train_steps:
        raise UsageError(
            f"--num_train_steps must be at least {reached}, the step that the run in "
            f"--output_dir={settings.output_dir} has reached, received "
            f"{settings.num_train_steps}"
        )


def _store_tokenizer(folder: RunFolder, tokenizer) -> None:
    """Writes the tokenizer to the run, so that its checkpoints can be used alone."""
    path = folder.join(tokenizer.file_name)
    if not files.exists(path):
        files.write_bytes(path, tokenizer.model)


def _check_sizes(
    settings: PretrainSettings,
    config: AlbertConfig,
    tokenizer,
    strategy: tf.distribute.Strategy,
) -> None:
    check_sizes(settings, config, tokenizer)
    for phase in phases_of(settings):
        size = phase.settings.train_batch_size
        given = size == settings.train_batch_size
        flag = "train_batch_size" if given else "sequence_length_schedule"
        limits.check_batch_size(
            *(phase.settings, config, strategy.num_replicas_in_sync, flag),
            sharing=len(strategy.extended.worker_devices),
        )


def _open_start(path: str):
    """Opens the initial checkpoint, once for all that is read from it, if any."""
    return open_checkpoint(path) if path else contextlib.nullcontext()


def _make_step(settings, config, objective, strategy, start) -> TrainStep:
    dtype = "mixed_bfloat16" if settings.precision == "bfloat16" else "float32"
    with strategy.scope():
        model = _make_model(settings, config, objective, start, dtype)
        optimizer = create_optimizer(
            settings.optimizer,
            learning_rate=settings.peak_learning_rate,
            num_train_steps=settings.num_train_steps,
            num_warmup_steps=settings.num_warmup_steps,
            weight_decay_rate=settings.weight_decay_rate,
            clip_norm=settings.clip_norm,
            poly_power=settings.poly_power,
            start_warmup_step=settings.start_warmup_step,
            learning_rate_schedule=settings.learning_rate_schedule,
            num_decay_steps=settings.num_decay_steps,
            ema_decay=settings.ema_decay,
        )
    keras.utils.set_random_seed(settings.seed)
    return TrainStep(
        model,
        objective,
        optimizer,
        strategy,
        seed=settings.seed,
        accumulation=settings.gradient_accumulation_steps,
        jit_compile=settings.jit_compile,
        fuse=settings.fuse_elementwise,
    )


def _make_model(settings, config, objective, start, dtype):
    if start is None:
        kind = find_head(objective.head).load_class()
        model = kind(config, seed=settings.seed, dtype=dtype)
        model.mark_untrained()
        return model
    if settings.grow:
        start = grow(start, config)
    found = differences(start.config, config)
    if found:
        hint = "; --grow allows it" if set(found) <= set(GROWABLE) else ""
        raise UsageError(
            f"--init_checkpoint={settings.init_checkpoint}: its config differs from "
            f"--preset or --albert_config_file, has {'; '.join(found.values())}{hint}"
        )
    return build_model(start, objective.head, seed=settings.seed, dtype=dtype)
