"""A pretraining run, from its settings to a folder with a model."""

from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.data.batches.pretraining import PretrainingData, data_errors
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.errors import UsageError
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.objectives.baselines import trivial_baselines
from albert_tf.optimizers.create import create_optimizer
from albert_tf.reports import model_card
from albert_tf.reports.curves import draw_pretraining_curves
from albert_tf.reports.metrics_file import METRICS_FILE, read_metrics
from albert_tf.storage import files
from albert_tf.text.load import load_tokenizer
from albert_tf.training import loop
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.progress import Progress
from albert_tf.training.run_folder import RunFolder
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import PretrainStep, distribute
from albert_tf.training.tensorflow.strategy import create_strategy, is_chief

MODEL_FOLDER = "model"
CHECKPOINT_FOLDER = "checkpoints"
CURVES_FILE = "curves.png"


def pretrain(settings: PretrainSettings) -> str:
    """Pretrains, or goes on where the same command was stopped.

    Args:
        settings: `PretrainSettings`.

    Returns:
        The folder of the trained model, `<output_dir>/model`.

    Raises:
        UsageError: If a setting, or the output folder, cannot be used.
        DataError: If an input file is not what it must be.
    """
    strategy = create_strategy(
        settings.distribution,
        num_devices=settings.num_devices,
        tpu_name=settings.tpu_name,
    )
    replicas = strategy.num_replicas_in_sync
    pieces = replicas * settings.gradient_accumulation_steps
    if settings.train_batch_size % pieces:
        raise UsageError(
            f"--train_batch_size must be a multiple of {replicas} devices x "
            f"{settings.gradient_accumulation_steps} accumulation steps, received "
            f"{settings.train_batch_size}"
        )
    folder = RunFolder(settings.output_dir, settings.identity())
    model_folder = folder.join(MODEL_FOLDER)
    if files.is_folder(model_folder):
        return model_folder
    config = load_config(settings)
    tokenizer = load_tokenizer(settings.spm_model_file)
    _check_sizes(settings, config, tokenizer)
    data = _Data(settings, tokenizer, replicas)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    step = _make_step(settings, config, strategy)
    # Everything that can be wrong with the inputs is found out by now.
    chief = is_chief(strategy)
    if chief:
        folder.begin()
    checkpoints = TrainingCheckpoints(
        folder.join(CHECKPOINT_FOLDER),
        step.model,
        step.optimizer,
        seed=settings.seed,
        keep=settings.keep_checkpoint_max,
        asynchronous=settings.async_checkpoint,
        chief=chief,
    )
    first = checkpoints.restore(folder.join(CHECKPOINT_FOLDER)) or 0
    bar = Progress(folder, first, settings.num_train_steps, chief)
    with bar as progress, data_errors():
        progress.say(data.training.summary)
        if first:
            progress.say(f"continuing from step {first}")
        batches = distribute(strategy, lambda n, i: data.train(first, n, i))
        evaluate = data.evaluation(step, strategy)
        loop.train(step, batches, settings, checkpoints, progress, evaluate)
    if chief:
        metrics = read_metrics(folder.join(METRICS_FILE))
        draw_pretraining_curves(metrics, folder.join(CURVES_FILE))
        card = model_card.describe(settings, config, metrics, tokenizer)
        files.write_text(folder.join("README.md"), card)
        step.model.mark_untrained(())
        save_pretrained(step.model, model_folder, tokenizer=tokenizer)
    return model_folder


def load_config(settings: PretrainSettings) -> AlbertConfig:
    """The model's config, from a preset or a file."""
    if settings.preset:
        try:
            return AlbertConfig.from_preset(settings.preset)
        except ValueError as e:
            raise UsageError(f"--preset={settings.preset}: {e}") from None
    return AlbertConfig.from_json(settings.albert_config_file)


def _check_sizes(settings, config, tokenizer) -> None:
    if settings.max_seq_length > config.max_position_embeddings:
        raise UsageError(
            f"--max_seq_length must be at most max_position_embeddings="
            f"{config.max_position_embeddings}, received {settings.max_seq_length}"
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"--spm_model_file={settings.spm_model_file}: has {tokenizer.vocab_size} "
            f"pieces, the config's vocab_size is {config.vocab_size}"
        )


def _make_step(settings, config, strategy) -> PretrainStep:
    dtype = "mixed_bfloat16" if settings.precision == "bfloat16" else "float32"
    with strategy.scope():
        if settings.init_checkpoint:
            model = from_pretrained(
                settings.init_checkpoint, head="pretraining", dtype=dtype
            )
            if model.config != config:
                raise UsageError(
                    f"--init_checkpoint={settings.init_checkpoint}: its config differs "
                    "from --preset or --albert_config_file"
                )
        else:
            model = AlbertPretrainer(config, seed=settings.seed, dtype=dtype)
        optimizer = create_optimizer(
            settings.optimizer,
            learning_rate=settings.learning_rate,
            num_train_steps=settings.num_train_steps,
            num_warmup_steps=settings.num_warmup_steps,
            weight_decay_rate=settings.weight_decay_rate,
            clip_norm=settings.clip_norm,
            poly_power=settings.poly_power,
            start_warmup_step=settings.start_warmup_step,
        )
    keras.utils.set_random_seed(settings.seed)
    return PretrainStep(
        model,
        optimizer,
        strategy,
        seed=settings.seed,
        accumulation=settings.gradient_accumulation_steps,
        jit_compile=settings.jit_compile,
    )


class _Data:
    """The run's training and evaluation batches."""

    def __init__(self, settings: PretrainSettings, tokenizer, replicas: int):
        self.settings = settings
        masking = MaskingConfig.from_preset(
            settings.masking,
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            **({"max_ngram": settings.ngram} if settings.masking == "albert" else {}),
        )
        common: dict[str, Any] = {
            "tokenizer": tokenizer,
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": settings.max_predictions_per_seq,
            "masking": masking,
            "seed": settings.seed,
            "packing": settings.packing,
        }
        self.training = PretrainingData(settings.input_file, **common)
        self.held_out = None
        if settings.eval_file:
            self.held_out = PretrainingData(settings.eval_file, **common)
        # A whole number of rows for every device.
        rows = max(settings.eval_batch_size, replicas)
        self.eval_batch_size = rows - rows % replicas

    def train(self, start_step: int, pipelines: int, pipeline: int) -> tf.data.Dataset:
        """Batches of one input pipeline from `start_step` on."""
        return self.training.batches(
            self.settings.train_batch_size,
            start_step=start_step,
            num_input_pipelines=pipelines,
            input_pipeline_id=pipeline,
        )

    def eval(self, pipelines: int = 1, pipeline: int = 0) -> tf.data.Dataset:
        """One pass over the held-out examples."""
        return self.held_out.batches(
            self.eval_batch_size,
            is_training=False,
            num_input_pipelines=pipelines,
            input_pipeline_id=pipeline,
        )

    def evaluation(self, step: PretrainStep, strategy: tf.distribute.Strategy):
        """Function that evaluates, or None without held-out data."""
        if not self.held_out:
            return None
        limit = self.settings.max_eval_steps
        with data_errors():
            baselines = trivial_baselines(self.eval(), limit)

        def evaluate():
            batches = distribute(strategy, self.eval)
            return {**loop.evaluate_batches(step, batches, limit), **baselines}

        return evaluate
